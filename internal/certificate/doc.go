// Package certificate keeps the webhook's serving certificate: it issues it,
// renews it long before it expires, shares it between replicas through one
// Secret, serves it from memory, and keeps the caBundle of a
// MutatingWebhookConfiguration and a ValidatingWebhookConfiguration, and of the
// definitions that the webhook converts, such that the API server trusts it.
//
// Every serving certificate gets a certificate authority of its own, whose key
// is thrown away at once: nothing that leaks can sign another certificate. A
// renewal therefore changes the trust too, and goes in this order: the new
// authority joins the old one in the caBundle; only when that had time to reach
// every API server does a replica serve the new certificate; the old authority
// leaves the bundle at the next renewal, months later.
//
// There is no leader: each replica does the same, and a create or update that
// another replica won is answered by reading what the winner wrote. The
// package never deletes anything and does not create the configurations.
//
// Start with Keeper.
package certificate
