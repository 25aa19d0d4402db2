package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/scheduling"
)

// answers gives one answer, and keeps what it was asked about.
type answers struct {
	err   error
	about string
}

func (a *answers) Standing(_ context.Context, workload types.NamespacedName) (inquiry.Standing, error) {
	a.about = workload.String()
	return inquiry.Standing{Reason: "WaitingForQuota", Position: 3}, a.err
}

func (a *answers) Simulate(_ context.Context, object *unstructured.Unstructured) (*inquiry.Simulation, error) {
	a.about = object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
	return &inquiry.Simulation{Outcome: inquiry.Starts}, a.err
}

func TestQuestionsAreAnsweredWithTheCodeOfWhatHappened(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, namespace: team}\n"
	for _, test := range []struct {
		name, method, url, body string
		err                     error
		code                    int
		about, says             string
	}{
		{"explain", "GET", explainPath + "?workload=team/w", "", nil, 200, "team/w", `"position":3`},
		{"explain nothing", "GET", explainPath, "", nil, 400, "", "NAMESPACE/NAME"},
		{"explain what is unknown", "GET", explainPath + "?workload=team/w", "", scheduling.ErrUnknownJob, 404, "team/w", "no job"},
		{"simulate", "POST", simulatePath, job, nil, 200, "Job team/j", `"outcome":"Starts"`},
		{"simulate nothing", "POST", simulatePath, "", nil, 400, "", "reading the object"},
		{"simulate what is in no namespace", "POST", simulatePath, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n", nil, 400, "", "no namespace"},
		{"simulate what is too large", "POST", simulatePath, "a: " + strings.Repeat("x", mostAsked), nil, 400, "", "too large"},
		{"simulate no job", "POST", simulatePath, job, scheduling.ErrInvalidJob, 422, "Job team/j", "no job"},
		{"busy", "POST", simulatePath, job, scheduling.ErrBusy, 429, "Job team/j", "another question"},
		{"a standby", "POST", simulatePath, job, scheduling.ErrNotLeading, 503, "Job team/j", "does not lead"},
		{"broken", "POST", simulatePath, job, errors.New("broken"), 500, "Job team/j", "broken"},
		{"only to look", "GET", simulatePath, "", nil, 405, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, w := &answers{err: test.err}, httptest.NewRecorder()
			questions(a).ServeHTTP(w, httptest.NewRequest(test.method, test.url, strings.NewReader(test.body)))
			if w.Code != test.code || a.about != test.about || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("%d %q about %q, want %d %q about %q", w.Code, w.Body, a.about, test.code, test.says, test.about)
			}
			if retry := w.Header().Get("Retry-After"); (retry != "") != (test.code == http.StatusTooManyRequests) {
				t.Errorf("Retry-After: %q", retry)
			}
		})
	}
}
