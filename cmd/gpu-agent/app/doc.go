// Package app builds the GPU agent of one node: the reader of its GPUs, the kubelet's
// lists and what the API server says of pods, joined by package agent, with probes and
// metrics beside it. It is wiring only, and decides nothing about a GPU. Start from New.
package app
