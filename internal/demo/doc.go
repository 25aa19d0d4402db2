// Package demo tells, on a terminal and on real controllers, what Muster is
// for: two jobs that would deadlock on a plain scheduler run one after the
// other, and a job that has quota but no place says so.
//
// It asserts what it shows: an error means that the cluster did something
// else. Start from Run.
package demo
