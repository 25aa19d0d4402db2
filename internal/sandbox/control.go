package sandbox

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Killing and restarting are asked of the supervisor, because only the parent
// of a process learns how it ended. The server listens on the loopback port
// that also claims the sandbox's block of ports, and wants the token that only
// the owner of the state file can read.

// serveControl serves until the returned function is called.
func (s *supervisor) serveControl(listener net.Listener) func() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", s.controlled(func(_ context.Context, name string) error {
		return s.children.kill(name)
	}))
	mux.HandleFunc("POST /restart", s.controlled(s.restart))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "serving kill and restart:", err)
		}
	}()
	return func() { _ = server.Close() }
}

func (s *supervisor) controlled(do func(ctx context.Context, component string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.state.Token)) != 1 {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		if err := do(r.Context(), r.URL.Query().Get("component")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}

// restart stops a component if it runs, and starts it again as it was started
// first. It returns when the component serves.
func (s *supervisor) restart(ctx context.Context, name string) error {
	ch, ok := s.children.lookup(name)
	if !ok {
		return fmt.Errorf("no component %s", name)
	}
	if err := s.children.stop(name); err != nil {
		return err
	}
	if err := s.children.start(ch.program); err != nil {
		return err
	}
	return s.children.awaitReady(ctx, name)
}

// ask sends one order to the supervisor that state describes.
func (s *State) ask(ctx context.Context, order, component string) error {
	target := url.URL{Scheme: "http", Host: loopback(s.ControlPort), Path: "/" + order,
		RawQuery: url.Values{"component": {component}}.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return fmt.Errorf("asking the supervisor to %s %s: %w", order, component, err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking the supervisor to %s %s: %w", order, component, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	message, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("asking the supervisor to %s %s: %w", order, component, err)
	}
	return fmt.Errorf("%s %s: %s", order, component, strings.TrimSpace(string(message)))
}
