// Package app builds Muster's webhook: the handlers of admission/queueing and
// admission/defaults behind
// a certificate that keeps itself, with probes and metrics beside it. It is
// wiring only, and decides nothing about an object. Start from New.
package app
