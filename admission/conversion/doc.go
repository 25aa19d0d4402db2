// Package conversion answers the API server's ConversionReviews for Kueue's API:
// objects of v1beta1, which is what older manifests and clients speak, become
// objects of v1beta2, which is what is stored, and back.
//
// What each field becomes is Kueue's own code. The package only serves it, so that
// v1beta1 goes on working where Kueue's manager, which would serve it otherwise,
// does not run. Start from Handler.
package conversion
