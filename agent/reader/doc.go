// Package reader reads the GPUs of a node through a Driver, any call of which may
// fail, panic, or never return.
//
// A Poller asks about all devices at once, and takes what has come by a deadline. Of
// each GPU and its slices at most one call is out at a time; while it is, the others
// are read as ever, nothing more is asked of that GPU, and nothing more is started
// for it. When the call returns, the GPU is read again.
//
// The package decides nothing about idleness; see agent/verdict. Start from Poller.
package reader
