package show

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/api/inquiry"
)

// Scheduler answers what only it knows.
type Scheduler struct {
	url    string
	client *http.Client
}

const (
	// inquiries is the path below which the scheduler answers.
	inquiries = "/muster/v1alpha1/"
	// answeredWithin is how long an answer is waited for.
	answeredWithin = 10 * time.Second
)

// ReachScheduler returns the scheduler at a URL, asked with the credentials of a
// configuration. Its certificate must be of one of the authorities in caFile, or, if that
// is empty, of the cluster's. With unverified it is taken as it is: whoever listens there
// gets the credentials.
func ReachScheduler(config *rest.Config, address, caFile string, unverified bool) (*Scheduler, error) {
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("the scheduler's address %q is no URL https://HOST:PORT", address)
	}
	config = rest.CopyConfig(config)
	config.Host, config.APIPath = "https://"+at.Host, ""
	config.Timeout = answeredWithin
	switch {
	case caFile != "" && unverified:
		return nil, errors.New("the scheduler's certificate is verified by given authorities, or not at all: not both")
	case caFile != "":
		if config.CAData, err = os.ReadFile(caFile); err != nil {
			return nil, fmt.Errorf("reading the scheduler's certificate authorities: %w", err)
		}
		config.CAFile, config.Insecure = "", false
	case unverified:
		config.CAFile, config.CAData, config.ServerName, config.Insecure = "", nil, "", true
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the scheduler: %w", err)
	}
	return &Scheduler{url: config.Host, client: client}, nil
}

// Explain asks why a job waits.
func (s *Scheduler) Explain(ctx context.Context, namespace, workload string) (*inquiry.Standing, error) {
	a := &inquiry.Standing{}
	return a, s.ask(ctx, http.MethodGet, "explain?workload="+url.QueryEscape(namespace+"/"+workload), nil, a)
}

// Simulate asks what would become of a job, in JSON or YAML.
func (s *Scheduler) Simulate(ctx context.Context, job []byte) (*inquiry.Simulation, error) {
	a := &inquiry.Simulation{}
	return a, s.ask(ctx, http.MethodPost, "simulate", job, a)
}

// mostTries is how often a question is put to a scheduler that is busy, longestPause for
// how long it is left alone between two of them.
const (
	mostTries    = 10
	longestPause = 5 * time.Second
)

// ask puts a question, again when a busy scheduler says so, and decodes the answer.
func (s *Scheduler) ask(ctx context.Context, method, question string, body []byte, answer any) error {
	for try := 1; ; try++ {
		again, err := s.askOnce(ctx, method, question, body, answer)
		if again < 0 || try == mostTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
}

// askOnce sends a question once. again is after how long a busy scheduler wants to be
// asked again, negative if there is no use in it.
func (s *Scheduler) askOnce(ctx context.Context, method, question string, body []byte, answer any) (again time.Duration, err error) {
	again = -1
	request, err := http.NewRequestWithContext(ctx, method, s.url+inquiries+question, bytes.NewReader(body))
	if err != nil {
		return again, fmt.Errorf("asking the scheduler: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return again, fmt.Errorf("asking the scheduler: %w", err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return again, fmt.Errorf("reading the scheduler's answer: %w", err)
	case response.StatusCode != http.StatusOK:
		if response.StatusCode == http.StatusTooManyRequests {
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds >= 0 {
				again = min(time.Duration(seconds)*time.Second, longestPause)
			}
		}
		return again, refused(response.StatusCode, strings.TrimSpace(string(said)))
	}
	if err := json.Unmarshal(said, answer); err != nil {
		return again, fmt.Errorf("decoding the scheduler's answer: %w", err)
	}
	return again, nil
}

// refused says why the scheduler has not answered.
func refused(code int, said string) error {
	switch code {
	case http.StatusUnauthorized:
		return errors.New("the scheduler does not know who you are: it takes what the API server takes, a token or a client's certificate")
	case http.StatusForbidden:
		return fmt.Errorf("the scheduler does not let you ask: the ClusterRole muster-viewer has the right to (%s)", said)
	case http.StatusTooManyRequests:
		return errors.New("the scheduler is busy with another question: ask again in a second")
	}
	return fmt.Errorf("the scheduler says: %s", said)
}
