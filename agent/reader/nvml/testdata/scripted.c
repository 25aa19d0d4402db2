// A libnvidia-ml.so.1 without GPUs: it says what the file SCRIPT says, line by line a key
// and a number, read anew with each question. Keys end in the index of a GPU. With
// OLD it lacks what drivers of before Hopper lack.
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include "nvml.h"

struct nvmlDevice_st { int gpu, slice; };
static struct nvmlDevice_st gpus[8], parts[8][7];
struct nvmlGpmSample_st { int gpu, slice, taken; };
static int event_set;

static long say(const char *key, long otherwise) {
	FILE *script = fopen(SCRIPT, "r");
	char name[128];
	long value;
	if (!script) return otherwise;
	while (fscanf(script, "%127s %ld", name, &value) == 2)
		if (!strcmp(name, key)) { otherwise = value; break; }
	fclose(script);
	return otherwise;
}

static long say_of(struct nvmlDevice_st *d, const char *what, long otherwise) {
	char key[160];
	if (d->slice >= 0) snprintf(key, sizeof key, "%s.%d.%d", what, d->gpu, d->slice);
	else snprintf(key, sizeof key, "%s.%d", what, d->gpu);
	return say(key, otherwise);
}

// Each call about a device hangs as long as it is to, and fails as it is to.
static nvmlReturn_t call(const char *function, struct nvmlDevice_st *d) {
	char key[160];
	snprintf(key, sizeof key, "fail.%s", function);
	if (d) {
		while (say_of(d, "hang", 0)) usleep(5000);
		return say_of(d, key, say(key, 0));
	}
	return say(key, 0);
}
#define ON(handle) do { nvmlReturn_t failed = call(__func__, handle); if (failed) return failed; } while (0)
#define BEGIN struct nvmlDevice_st *d = device.handle; ON(d)

nvmlReturn_t nvmlInit_v2(void) { ON(0); return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { ON(0); return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t result) {
	static char text[32];
	snprintf(text, sizeof text, "error %d", result);
	return text;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { ON(0); *count = say("gpus", 0); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	gpus[index].gpu = index;
	gpus[index].slice = -1;
	nvmlReturn_t failed = call(__func__, &gpus[index]);
	if (failed) return failed;
	device->handle = &gpus[index];
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	BEGIN;
	if (d->slice < 0) snprintf(uuid, length, "GPU-%d", d->gpu);
	else snprintf(uuid, length, "MIG-%d-%d", d->gpu, d->slice);
	return NVML_SUCCESS;
}
// Minor numbers are not indexes.
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) { BEGIN; *minor = d->gpu + 4; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	BEGIN;
	snprintf(name, length, d->slice < 0 ? "NVIDIA H200" : "NVIDIA H200 MIG %dg.18gb", d->slice + 1);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	BEGIN;
	memory->total = 141ull << 30;
	memory->used = say_of(d, "used", 0);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	BEGIN;
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", 0x1a + d->gpu);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *later) {
	BEGIN;
	*now = *later = say_of(d, "slices", 0) > 0;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) { BEGIN; *count = 7; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice) {
	BEGIN;
	if (index >= say_of(d, "slices", 0)) return NVML_ERROR_NOT_FOUND;
	parts[d->gpu][index].gpu = d->gpu;
	parts[d->gpu][index].slice = index;
	slice->handle = &parts[d->gpu][index];
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) { BEGIN; *id = d->slice + 7; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) { BEGIN; *id = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *about) {
	BEGIN;
	about->gpuInstanceSliceCount = about->computeInstanceSliceCount = d->slice + 1;
	about->memorySizeMB = 18432;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t what, nvmlGpuP2PStatus_t *status) {
	BEGIN;
	*status = say("nvlink", 0) && what == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
	return NVML_SUCCESS;
}
// Four samples, of which the last is a row that was not filled.
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *kind, unsigned int *count, nvmlSample_t *samples) {
	BEGIN;
	*kind = NVML_VALUE_TYPE_UNSIGNED_INT;
	*count = 4;
	for (int i = 0; samples && i < 3; i++) {
		samples[i].timeStamp = say("now", 1000) + i;
		samples[i].sampleValue.uiVal = i == 1 ? say_of(d, "busy", 0) : 0;
	}
	if (samples) memset(&samples[3], 0, sizeof samples[3]);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) { BEGIN; rates->gpu = say_of(d, "rate", 0); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period) { BEGIN; *percent = say_of(d, "encoder", 0); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period) { BEGIN; *percent = say_of(d, "decoder", 0); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) { BEGIN; *milliwatts = say_of(d, "power", 75000); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts) { BEGIN; *milliwatts = 700000; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius) { BEGIN; *celsius = 41; return NVML_SUCCESS; }

static nvmlReturn_t processes(unsigned int n, unsigned long long memory, unsigned int *count, nvmlProcessInfo_t *list) {
	unsigned int room = *count;
	*count = n;
	if (n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) {
		list[i].pid = 100 + i;
		list[i].usedGpuMemory = memory;
	}
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list) { BEGIN; return processes(say_of(d, "compute", 0), 4096, count, list); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *list) { BEGIN; return processes(say_of(d, "graphics", 0), ~0ull, count, list); }

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *right, unsigned int *wrong, unsigned int *pending, unsigned int *failed) {
	BEGIN;
	*right = *wrong = 0;
	*pending = say_of(d, "pending", 0);
	*failed = say_of(d, "unmapped", 0);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *count) {
	BEGIN;
	*count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC ? say_of(d, "ecc", 0) : 0;
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values) {
	BEGIN;
	for (int i = 0; i < n; i++) {
		values[i].nvmlReturn = say_of(d, "field", 0);
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = say_of(d, "recovery", 0);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) { ON(0); set->handle = (void *)&event_set; return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) { BEGIN; *types = nvmlEventTypeXidCriticalError; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) { BEGIN; return NVML_SUCCESS; }
// Each number of the key "xid" is told once, of the first GPU.
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned int milliseconds) {
	static long told;
	for (; milliseconds > 0; milliseconds = milliseconds > 10 ? milliseconds - 10 : 0) {
		long xid = say("xid", 0);
		if (xid && xid != told) {
			told = xid;
			event->device.handle = &gpus[0];
			event->eventType = nvmlEventTypeXidCriticalError;
			event->eventData = xid;
			return NVML_SUCCESS;
		}
		usleep(10000);
	}
	return NVML_ERROR_TIMEOUT;
}

#ifndef OLD
nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) { BEGIN; support->isSupportedDevice = say_of(d, "gpm", 1); return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) { ON(0); sample->handle = calloc(1, sizeof *sample->handle); return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) { free(sample.handle); return NVML_SUCCESS; }
static int taken;
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) { BEGIN; sample.handle->gpu = d->gpu; sample.handle->slice = -1; sample.handle->taken = ++taken; return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample) { BEGIN; sample.handle->gpu = d->gpu; sample.handle->slice = instance - 7; sample.handle->taken = ++taken; return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request) {
	ON(0);
	struct nvmlGpmSample_st *now = request->sample2.handle;
	struct nvmlDevice_st d = {now->gpu, now->slice};
	if (request->sample1.handle->taken >= now->taken) return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < request->numMetrics; i++) {
		nvmlGpmMetric_t *m = &request->metrics[i];
		m->nvmlReturn = NVML_SUCCESS;
		switch (m->metricId) {
		case NVML_GPM_METRIC_GRAPHICS_UTIL: m->value = say_of(&d, "graphics_util", 0); break;
		case NVML_GPM_METRIC_SM_UTIL: m->value = say_of(&d, "sm_util", 0); break;
		case NVML_GPM_METRIC_NVDEC_0_UTIL: m->value = say_of(&d, "nvdec", 0); break;
		default: m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		}
	}
	return NVML_SUCCESS;
}
#endif
