/* A libnvidia-ml whose GPUs are the lines of NVML_GPUS: name;total MiB;free MiB;percent;pid;process MiB;
   throttle reasons;MIG. "hang" in their place does not answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char name[96]; unsigned long long total, free; unsigned percent, pid; unsigned long long used;
                 unsigned long long reasons; unsigned mig; } gpu_t;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process_t;

static gpu_t gpus[16];
static unsigned count;

int nvmlInit_v2(void) {
    const char *said = getenv("NVML_GPUS");
    if (!said) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    if (!strcmp(said, "hang")) sleep(600);
    count = 0;
    while (count < 16 && *said) {
        gpu_t *g = &gpus[count];
        if (sscanf(said, "%95[^;];%llu;%llu;%u;%u;%llu;%llu;%u", g->name, &g->total, &g->free, &g->percent, &g->pid,
                   &g->used, &g->reasons, &g->mig) == 8) count++;
        said = strchr(said, '\n');
        if (!said) break;
        said++;
    }
    return 0;
}
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
static gpu_t *of(void *device) { return &gpus[(size_t)device - 1]; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, of(device)->name, length); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-%08u-0000-0000-0000-000000000000", (unsigned)(size_t)device - 1);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device; *major = 9; *minor = 0; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    gpu_t *g = of(device);
    if (!g->total) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    memory[0] = g->total << 20; memory[1] = g->free << 20; memory[2] = (g->total - g->free) << 20;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { rates[0] = of(device)->percent; rates[1] = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, process_t *found) {
    unsigned room = *n;
    *n = of(device)->pid ? 1 : 0;
    if (room < *n) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    if (*n) { found->pid = of(device)->pid; found->used = of(device)->used << 20; }
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = of(device)->reasons; return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { (void)device; *milliwatts = 700000; return 0; }
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) { (void)device; (void)type; *mhz = 1980; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = of(device)->mig; return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length) { strncpy(version, "580.159.04", length); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
