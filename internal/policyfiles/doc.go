// Package policyfiles tests, evaluates and lints policies in files with the engine
// that the webhook has, so that an admin sees before what it would say. It needs no
// cluster. Start from Load.
package policyfiles
