package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	apiserveroptions "k8s.io/apiserver/pkg/server/options"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/scheduling"
)

const (
	// explainPath and simulatePath are the nonResourceURLs for which a user needs the
	// verbs get and post.
	explainPath  = "/muster/v1alpha1/explain"
	simulatePath = "/muster/v1alpha1/simulate"
	// mostAsked bounds the object that is asked about: what etcd would take of it.
	mostAsked = 3 << 19
	// endsWithin is how long an answer may take when the process ends.
	endsWithin = 5 * time.Second
)

// answerer answers questions about jobs.
type answerer interface {
	Standing(ctx context.Context, workload types.NamespacedName) (inquiry.Standing, error)
	Simulate(ctx context.Context, object *unstructured.Unstructured) (*inquiry.Simulation, error)
}

// serveQuestions answers questions, where that is configured, until ended is called. It is
// a port of its own because the kube-scheduler's library lets nobody add to that of its
// metrics; who asks is found out in the same way.
func (a *App) serveQuestions(ctx context.Context) (ended func(), err error) {
	if a.questionsPort == 0 || a.config.SecureServing == nil || a.config.Authentication.Authenticator == nil {
		return func() {}, nil
	}
	serving := *a.config.SecureServing
	host, _, err := net.SplitHostPort(serving.Listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("reading the address of the secure port: %w", err)
	}
	address := net.JoinHostPort(host, strconv.Itoa(int(a.questionsPort)))
	if serving.Listener, _, err = apiserveroptions.CreateListener("tcp", address, net.ListenConfig{}); err != nil {
		return nil, fmt.Errorf("listening for questions: %w", err)
	}
	info := &apirequest.RequestInfoFactory{}
	handler := genericapifilters.WithAuthorization(questions(a.Core), a.config.Authorization.Authorizer, clientgoscheme.Codecs)
	handler = genericapifilters.WithAuthentication(handler, a.config.Authentication.Authenticator, genericapifilters.Unauthorized(clientgoscheme.Codecs), nil, nil)
	handler = genericapifilters.WithRequestInfo(handler, info)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	handler = genericfilters.WithPanicRecovery(handler, info)
	stop := make(chan struct{})
	stopped, _, err := serving.Serve(handler, endsWithin, stop)
	if err != nil {
		return nil, fmt.Errorf("serving questions: %w", err)
	}
	klog.FromContext(ctx).Info("Answering questions about jobs", "address", address)
	return func() {
		close(stop)
		<-stopped
	}, nil
}

// questions is the handler of both questions.
func questions(a answerer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+explainPath, func(w http.ResponseWriter, r *http.Request) {
		namespace, name, ok := strings.Cut(r.URL.Query().Get("workload"), "/")
		if !ok || namespace == "" || name == "" {
			http.Error(w, "say which: ?workload=NAMESPACE/NAME", http.StatusBadRequest)
			return
		}
		s, err := a.Standing(r.Context(), types.NamespacedName{Namespace: namespace, Name: name})
		answer(w, r, s, err)
	})
	mux.HandleFunc("POST "+simulatePath, func(w http.ResponseWriter, r *http.Request) {
		object, err := objectIn(http.MaxBytesReader(w, r.Body, mostAsked))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s, err := a.Simulate(r.Context(), object)
		answer(w, r, s, err)
	})
	return mux
}

// objectIn reads one object of YAML or JSON.
func objectIn(body io.Reader) (*unstructured.Unstructured, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	object := &unstructured.Unstructured{}
	if text, err = yaml.YAMLToJSON(text); err == nil {
		err = object.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	if object.GetNamespace() == "" {
		return nil, errors.New("the object names no namespace")
	}
	return object, nil
}

// answer writes what was found out, or why that was not done.
func answer(w http.ResponseWriter, r *http.Request, what any, err error) {
	switch {
	case errors.Is(err, scheduling.ErrBusy):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case errors.Is(err, scheduling.ErrNotLeading):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, scheduling.ErrUnknownJob):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, scheduling.ErrInvalidJob):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		klog.FromContext(r.Context()).Error(err, "Answering a question", "path", r.URL.Path)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(what); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Answer not sent", "err", err.Error())
		}
	}
}
