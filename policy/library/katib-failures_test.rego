package muster.katib_failures_test

import data.muster.katib_failures

test_without if count(katib_failures.violation) == 1 with input.workload.trials as {"maxFailedTrialCount": null}

test_with_none if count(katib_failures.violation) == 0 with input.workload.trials as {"maxFailedTrialCount": 0}
