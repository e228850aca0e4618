/* A libnvidia-ml that describes one H200, or hangs, or fails, as NVML_STUB says: what NVML's binding calls. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } memory_t;

static int is(const char *what) {
    const char *said = getenv("NVML_STUB");
    return said && !strcmp(said, what);
}

int nvmlInit_v2(void) {
    if (is("hang")) sleep(600);
    return is("mismatch") ? 18 : 0; /* NVML_ERROR_LIB_RM_VERSION_MISMATCH */
}
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device; strncpy(name, "NVIDIA H200", length); return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    (void)device; strncpy(uuid, "GPU-00000000-1111-2222-3333-444444444444", length); return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device; *major = 9; *minor = 0; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    (void)device;
    if (is("shared-memory")) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    memory->total = 143771ULL << 20;
    return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    (void)device; *current = *pending = is("mig"); return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length) { strncpy(version, "580.159.04", length); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
