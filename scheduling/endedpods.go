package scheduling

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// endedBits is how many hashes of groups are told apart; 2^23 take 1 MiB.
	endedBits = 1 << 23
	// endedPage is how many pods that have ended are read at a time, and endedAgain is
	// how long it takes until they are read again if that has failed.
	endedPage  = 500
	endedAgain = 5 * time.Second
)

// endedGroups remembers the groups of which a pod has ended, or may have, for ever and
// in a fixed space: by a hash of their keys. A group that is not among them has had
// none; one that is may have the hash of another.
type endedGroups struct {
	seed maphash.Seed
	bits []uint64
}

func newEndedGroups() endedGroups {
	return endedGroups{seed: maphash.MakeSeed(), bits: make([]uint64, endedBits/64)}
}

// place is the word of a key, and its bit in it.
func (e endedGroups) place(key string) (word, bit uint64) {
	h := maphash.String(e.seed, key) % endedBits
	return h / 64, 1 << (h % 64)
}

func (e endedGroups) add(key string) {
	word, bit := e.place(key)
	e.bits[word] |= bit
}

func (e endedGroups) has(key string) bool {
	word, bit := e.place(key)
	return e.bits[word]&bit != 0
}

// learnEnded reads the pods that have ended before the listener began to listen, and
// tries until it has, or until ctx is done. From then on no group is asked for that
// has lost no pod.
func (g *groupPods) learnEnded(ctx context.Context, api client.Reader, c clock.Clock) {
	for {
		err := g.readEnded(ctx, api)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("The API is asked for the pods of each group until it has said which pods have ended", "err", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(endedAgain):
		}
	}
}

// readEnded reads the pods that have ended. What ends meanwhile the listener hears of.
func (g *groupPods) readEnded(ctx context.Context, api client.Reader) error {
	for !g.synced() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		page := &corev1.PodList{}
		for first := true; first || page.Continue != ""; first = false {
			next := &corev1.PodList{}
			err := api.List(ctx, next, client.MatchingFields{"status.phase": string(phase)}, client.Limit(endedPage), client.Continue(page.Continue))
			if err != nil {
				return fmt.Errorf("listing pods that have ended: %w", err)
			}
			page = next
			g.endedBefore(page.Items)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.complete = true
	for key, k := range g.groups {
		k.whole = k.whole || !g.ended.has(key)
	}
	return nil
}

// endedBefore takes in pods that have ended.
func (g *groupPods) endedBefore(pods []corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range pods {
		for _, key := range groupKeys(&pods[i]) {
			g.ended.add(key)
		}
	}
}
