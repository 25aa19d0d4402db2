// Package typed makes objects of Go types of those that a dynamic client has read, for
// informers of kinds that a cluster may lack.
//
// The API server stores objects that their type refuses, such as quantities beyond all
// bounds. One of them must not keep the others from being read. Start from Of.
package typed
