package serving

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"one","operation":"CREATE"}}`

// ask posts a review and returns the status and the body.
func ask(h http.Handler) (int, string) { return askOf(h, len(review)) }

// askOf posts a review of so many bytes.
func askOf(h http.Handler, size int) (int, string) {
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(review+strings.Repeat(" ", size-len(review))))
	request.Header.Set("Content-Type", "application/json")
	response := httptest.NewRecorder()
	h.ServeHTTP(response, request)
	return response.Code, response.Body.String()
}

func TestOnlyADecisionAllowsOrRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		decide     Decide
		status     int
		says       string
		unanswered []string
	}{
		"allowed": {
			decide: func(context.Context, admission.Request) (admission.Response, error) {
				return admission.Allowed(""), nil
			},
			status: http.StatusOK, says: `"allowed":true`,
		},
		"refused": {
			decide: func(context.Context, admission.Request) (admission.Response, error) {
				return admission.Denied("no"), nil
			},
			status: http.StatusOK, says: `"allowed":false`,
		},
		"a fault of the program's own": {
			decide: func(context.Context, admission.Request) (admission.Response, error) {
				return admission.Response{}, errors.New("no cache")
			},
			status: http.StatusServiceUnavailable, says: "Muster's webhook cannot answer now: fault\n", unanswered: []string{ReasonFault},
		},
		"a panic": {
			decide: func(context.Context, admission.Request) (admission.Response, error) { panic("planted") },
			status: http.StatusServiceUnavailable, says: "Muster's webhook cannot answer now: panic\n", unanswered: []string{ReasonPanic},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var unanswered []string
			h, err := New("/x", tc.decide, func(reason string) { unanswered = append(unanswered, reason) })
			if err != nil {
				t.Fatal(err)
			}
			status, body := ask(h)
			if status != tc.status || !strings.Contains(body, tc.says) || (status != http.StatusOK && body != tc.says) {
				t.Errorf("status %d, %s", status, body)
			}
			if diff := cmp.Diff(tc.unanswered, unanswered); diff != "" {
				t.Errorf("unanswered (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooManyRequestsAtOnceAreTurnedAwayAndTheNextIsAnswered(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct {
		// under are the bytes of those that are worked on, as many as there may be.
		under                []int
		turnedAway, answered []int
	}{
		"many small ones":           {under: slices.Repeat([]int{1000}, 32), turnedAway: []int{1000, mib}},
		"a few large ones":          {under: slices.Repeat([]int{mib}, 4), turnedAway: []int{1000, mib}},
		"a large one, beside small": {under: []int{3 * mib}, turnedAway: []int{2 * mib}, answered: []int{1000, mib / 2}},
		"one that takes all":        {under: []int{6 * mib}, turnedAway: []int{1000, mib}},
	} {
		t.Run(name, func(t *testing.T) {
			leave, entered := make(chan struct{}), make(chan struct{}, 64)
			leaveAll := sync.OnceFunc(func() { close(leave) })
			defer leaveAll()
			busy := make(chan string, 64)
			h, err := New("/x", func(context.Context, admission.Request) (admission.Response, error) {
				entered <- struct{}{}
				<-leave
				return admission.Allowed(""), nil
			}, func(reason string) { busy <- reason })
			if err != nil {
				t.Fatal(err)
			}
			s := h.(*server)
			s.patience = time.Minute
			done := make(chan int, 64)
			start := func(size int) {
				go func() {
					status, _ := askOf(h, size)
					done <- status
				}()
				select {
				case <-entered:
				case status := <-done:
					t.Fatalf("one of %d bytes was answered with %d", size, status)
				}
			}
			for _, size := range tc.under {
				start(size)
			}
			s.patience = time.Millisecond
			for _, size := range tc.turnedAway {
				status := make(chan int, 1)
				go func() {
					s, _ := askOf(h, size)
					status <- s
				}()
				select {
				case <-entered:
					t.Fatalf("one too many of %d bytes is worked on", size)
				case s := <-status:
					if s != http.StatusServiceUnavailable {
						t.Errorf("one too many of %d bytes was answered with %d", size, s)
					}
				}
				if reason := <-busy; reason != ReasonBusy {
					t.Errorf("reason %s", reason)
				}
			}
			for _, size := range tc.answered {
				start(size)
			}
			leaveAll()
			for range len(tc.under) + len(tc.answered) {
				if status := <-done; status != http.StatusOK {
					t.Errorf("one in time was answered with %d", status)
				}
			}
			if status, _ := ask(h); status != http.StatusOK {
				t.Errorf("the next is answered with %d", status)
			}
		})
	}
}

func TestADecisionEndsBeforeTheAPIServerStopsWaiting(t *testing.T) {
	for query, want := range map[string]time.Duration{"": 0, "?timeout=3s": 2 * time.Second, "?timeout=1s": 250 * time.Millisecond, "?timeout=x": 0} {
		var left time.Duration
		h, err := New("/x", func(ctx context.Context, _ admission.Request) (admission.Response, error) {
			if end, bounded := ctx.Deadline(); bounded {
				left = time.Until(end)
			}
			return admission.Allowed(""), nil
		}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequest(http.MethodPost, "/"+query, strings.NewReader(review))
		request.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), request)
		if left > want || (left <= 0) != (want == 0) {
			t.Errorf("%q: %v are left, want nearly %v", query, left, want)
		}
	}
}
