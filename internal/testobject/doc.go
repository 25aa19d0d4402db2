// Package testobject changes the objects of a cluster for tests, in which
// controllers write the same objects. Start from Change.
package testobject
