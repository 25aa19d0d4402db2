package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Proxy stands between one program and the API server. It does to the
// program's requests what networks, crashes and loaded servers do: it loses
// requests and answers, delays them, refuses them, holds watches back, and
// cuts the program off. A change that has reached the proxy is carried out even
// if the program that sent it is gone, as one that has reached the server is.
type Proxy struct {
	// Kubeconfig is the path of a file that leads through the proxy.
	Kubeconfig string

	forward  *httputil.ReverseProxy
	requests *apirequest.RequestInfoFactory

	mu    sync.Mutex
	fault func(Request) Fault
	cut   bool
	conns map[net.Conn]struct{}
	// held are closed when the watches of a resource go on.
	held map[string]chan struct{}
	// listed are the resources of which a watch has told all that there was.
	listed map[string]bool
}

// Request is one request to the API server.
type Request struct {
	// Verb is that of the API: get, list, watch, create, update, patch, delete.
	Verb string
	// Resource is plural, with its subresource: workloads/status.
	Resource        string
	Namespace, Name string
	// Body is what is sent, in the encoding that the program chose; empty for
	// requests that change nothing.
	Body []byte
}

// Changes says that the request is to change something.
func (r Request) Changes() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
}

// String says what is asked for.
func (r Request) String() string {
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}

// Fault is what becomes of a request. The zero Fault lets it pass.
type Fault struct {
	// Delay is how long the request waits before anything else happens to it.
	Delay time.Duration
	// Status is answered, with a Status object, instead of asking the server.
	Status int
	// LoseRequest: the connection ends before the server has seen the request.
	LoseRequest bool
	// LoseAnswer: the server carries the request out, and the connection ends.
	LoseAnswer bool
	// Then is called when the request or the answer is lost, before the
	// program can notice.
	Then func()
}

// requestKey is where the context of a request carries the Request.
type requestKey struct{}

// Proxy runs a proxy in front of the API server until the test ends. Whoever
// uses it has the rights of the cluster's own client.
func (c *Cluster) Proxy(t testing.TB) *Proxy {
	t.Helper()
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatalf("reading the address of the API server: %v", err)
	}
	transport, err := rest.TransportFor(c.Config)
	if err != nil {
		t.Fatalf("building a transport: %v", err)
	}
	p := &Proxy{
		Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		requests:   &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		conns:      map[net.Conn]struct{}{},
		held:       map[string]chan struct{}{},
		listed:     map[string]bool{},
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// What watches tell is looked at.
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if req, ok := r.Request.Context().Value(requestKey{}).(Request); ok && req.Verb == "watch" {
				r.Body = &watchBody{ReadCloser: r.Body, ctx: r.Request.Context(), proxy: p, resource: req.Resource}
			}
			return nil
		},
		// A server that ends is no answer to a program that is tested.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(p)
	server.Config.ConnState = p.track
	server.Start()
	t.Cleanup(func() {
		p.Cut()
		server.Close()
	})
	k := clientcmdapi.NewConfig()
	k.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL}
	k.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	k.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*k, p.Kubeconfig); err != nil {
		t.Fatalf("writing the proxy's kubeconfig: %v", err)
	}
	return p
}

// Faults has fault decide what becomes of each request from now on; nil lets
// all pass. It is called from many goroutines at the same time, and may take
// its time.
func (p *Proxy) Faults(fault func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// Cut ends all connections, and every later one at its first request.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		c.Close()
	}
}

// Mend undoes Cut.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Hold keeps back all that watches of a resource would tell from now on.
func (p *Proxy) Hold(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[resource] == nil {
		p.held[resource] = make(chan struct{})
	}
}

// Release undoes Hold: what was kept back is told, in order.
func (p *Proxy) Release(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.held[resource]; c != nil {
		close(c)
		delete(p.held, resource)
	}
}

// gate is closed when the watches of a resource may go on; nil if they may now.
func (p *Proxy) gate(resource string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[resource]
}

// Listed says that a watch of a resource has passed on all that there was when
// it began: the program knows that much, or is about to.
func (p *Proxy) Listed(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listed[resource]
}

func (p *Proxy) setListed(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed[resource] = true
}

// watchBody is what a watch tells, as soon as its gate is open.
type watchBody struct {
	io.ReadCloser
	ctx      context.Context
	proxy    *Proxy
	resource string
	// last is the end of what was read, in which the mark may have begun.
	last   []byte
	listed bool
}

func (b *watchBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if !b.listed {
		b.last = append(b.last, into[:n]...)
		if mark := []byte(metav1.InitialEventsAnnotationKey); bytes.Contains(b.last, mark) {
			b.listed, b.last = true, nil
			defer b.proxy.setListed(b.resource)
		} else {
			b.last = bytes.Clone(b.last[max(0, len(b.last)-len(mark)):])
		}
	}
	if gate := b.proxy.gate(b.resource); gate != nil {
		select {
		case <-gate:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	return n, err
}

func (p *Proxy) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	}
}

// state is whether the program is cut off, and else what decides on requests.
func (p *Proxy) state() (cut bool, fault func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut, p.fault
}

// ServeHTTP forwards one request, or does to it what is to be done.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cut, fault := p.state()
	if cut {
		panic(http.ErrAbortHandler)
	}
	req, r, err := p.read(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var f Fault
	if fault != nil {
		f = fault(req)
	}
	select {
	case <-time.After(f.Delay):
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	then := func() {
		if f.Then != nil {
			f.Then()
		}
		panic(http.ErrAbortHandler)
	}
	switch {
	case f.LoseRequest:
		then()
	case f.LoseAnswer:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		then()
	case f.Status != 0:
		refuse(w, f.Status)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// read reads what a request asks for, and returns it with a request that
// forwards the same. One that changes something does not end with its sender.
func (p *Proxy) read(r *http.Request) (Request, *http.Request, error) {
	info, err := p.requests.NewRequestInfo(r)
	if err != nil {
		return Request{}, nil, err
	}
	req := Request{Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name}
	if info.Subresource != "" {
		req.Resource += "/" + info.Subresource
	}
	ctx := r.Context()
	if req.Changes() {
		if req.Body, err = io.ReadAll(r.Body); err != nil {
			return Request{}, nil, err
		}
		ctx = context.WithoutCancel(ctx)
	}
	out := r.WithContext(context.WithValue(ctx, requestKey{}, req))
	if req.Changes() {
		out.Body = io.NopCloser(bytes.NewReader(req.Body))
	}
	return req, out, nil
}

// refuse answers as an API server does that cannot serve.
func refuse(w http.ResponseWriter, code int) {
	reason := metav1.StatusReasonInternalError
	switch code {
	case http.StatusTooManyRequests:
		reason = metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		reason = metav1.StatusReasonServiceUnavailable
	case http.StatusConflict:
		reason = metav1.StatusReasonConflict
	}
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "refused by the proxy of the test",
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The program that asked may be gone.
	_ = json.NewEncoder(w).Encode(status)
}
