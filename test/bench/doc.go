// Package bench measures Muster beside its peers, on sandboxes: each in turn, on a
// fresh API server, in one run and with the same load, so that what is reported is
// a ratio and not a property of the machine.
//
// What cannot be fast is checked all the same: quota is never overshot, at no
// resource version, whoever decides, and no pod of a gang is bound that was not
// admitted whole. Start from BenchmarkQuotaAdmit, BenchmarkGangs, BenchmarkCreates and
// BenchmarkWebhookMemory; run "make bench-quota-admit", "make bench-gangs", "make
// bench-creates" and "make bench-webhook-memory".
package bench
