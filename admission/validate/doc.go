// Package validate answers the API server whether the policies let an object be
// created or changed, in the words that Gatekeeper's users know.
//
// It decides nothing itself: the policies do (package policy). What it adds is what
// they may know of the cluster around an object. An answer that cannot be given, for a
// reason that is no policy's, is an error, so that the failure policy of the webhook
// decides. Start from Handler.
package validate
