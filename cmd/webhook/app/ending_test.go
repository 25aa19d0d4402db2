package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-gpu/muster/admission/queueing"
	"github.com/muster-gpu/muster/admission/serving"
)

func TestARequestInFlightIsAnsweredBeforeTheEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	slow, err := serving.New(queueing.Path, func(context.Context, admission.Request) (admission.Response, error) {
		close(entered)
		<-leave
		return admission.Allowed(""), nil
	}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, slow)
	client := r.caller()
	answered := make(chan error, 1)
	go func() {
		answer, err := r.review(client, queuedTrainJob)
		if err == nil && !answer.Allowed {
			err = fmt.Errorf("refused: %v", answer.Result)
		}
		answered <- err
	}()
	<-entered
	r.stop()
	r.becomes(http.StatusServiceUnavailable)
	close(leave)
	if err := <-answered; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	select {
	case err := <-r.stopped:
		if err != nil {
			t.Errorf("a stop that was asked for ends with: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("does not stop")
	}
}

func TestAConnectionOfAnEndingReplicaIsClosedByItsNextAnswerAndNotBefore(t *testing.T) {
	r := start(t, nil, func(s *service) { s.drainTime = drainTime })
	client := r.caller()
	conn, err := tls.Dial("tcp", r.listeners.webhook.Addr().String(), client.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	ask := func() *http.Response {
		t.Helper()
		request, err := http.NewRequest(http.MethodPost, "https://webhook"+queueing.Path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := request.Write(conn); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, request)
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if ask().Close {
		t.Error("the first answer closes the connection")
	}
	r.stop()
	r.becomes(http.StatusServiceUnavailable)
	if !ask().Close {
		t.Error("an answer does not say that it is the last")
	}
	if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is open (%v)", err)
	}
}
