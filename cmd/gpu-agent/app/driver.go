package app

import (
	"context"
	"fmt"

	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/reader/scripted"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
)

// driverOf is the driver that the configuration names; what follows it ends with ctx.
func driverOf(ctx context.Context, config configv1alpha1.GPUAgentReader) (reader.Driver, error) {
	switch config.Kind {
	case configv1alpha1.ReaderScripted:
		return scripted.Follow(ctx, config.Script), nil
	case configv1alpha1.ReaderNVML:
		return nvmlDriver(config.Library)
	}
	return nil, fmt.Errorf("reader.kind: there is no reader %q", config.Kind)
}
