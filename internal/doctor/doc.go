// Package doctor finds, and mends on request, what keeps a cluster from working
// although every program in it does its part: what one that has gone has left
// behind. It changes nothing of what a live program looks after.
//
// Start from HandOver.
package doctor
