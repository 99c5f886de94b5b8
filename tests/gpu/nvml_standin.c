/* A stand-in for libnvidia-ml.so.1 with the ABI of nvml.h: what it says stands in the text file that
 * JUMPER_NVML_STATE names, read anew at each call. ABI is the newest version of the process lists that it has
 * (1: drivers before 450, 16 bytes a process; 2: before 510, 24 bytes; 3: today, 24 bytes).
 *
 *   driver gone                                           every call fails from now on
 *   lost 1                                                device 1 fell off the bus
 *   denied 1                                              device 1 is kept from us
 *   device UUID NAME TOTAL USED BUSY BAND MW MJ C MIG     -1: not supported
 *   instance PARENT UUID NAME TOTAL USED
 *   process d0|i0 C|G PID BYTES                           on a device or an instance; -1: not known
 *   sample DEVICE STAMP_US PID SM MEM
 *   rest DEVICE STAMP_US PID SM MEM                       a sample that is given however old it is
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, LOST = 15 };

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned pid; unsigned long long used; } process_v1;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_v2;
typedef struct { unsigned pid; unsigned long long stamp; unsigned sm, mem, enc, dec; } sample;

_Static_assert(sizeof(process_v1) == 16 && sizeof(process_v2) == 24, "sizes of nvml.h");
_Static_assert(sizeof(memory_v1) == 24 && sizeof(memory_v2) == 40 && sizeof(sample) == 32, "sizes of nvml.h");

typedef struct {
    char uuid[96], name[96];
    long long total, used, busy, band, mw, mj, celsius, mig;
    int parent, lost, denied;
} entry;

static entry devices[16], instances[16];
static int device_count, instance_count, gone, initialized;

static FILE *open_state(void)
{
    const char *path = getenv("JUMPER_NVML_STATE");
    return path ? fopen(path, "r") : NULL;
}

static int load(void)
{
    FILE *file = open_state();
    char line[512];
    int number;
    device_count = instance_count = gone = 0;
    memset(devices, 0, sizeof devices);
    if (!file)
        return NO_DRIVER;
    while (fgets(line, sizeof line, file)) {
        entry *d = &devices[device_count], *i = &instances[instance_count];
        if (sscanf(line, "device %95s %95s %lld %lld %lld %lld %lld %lld %lld %lld", d->uuid, d->name, &d->total,
                   &d->used, &d->busy, &d->band, &d->mw, &d->mj, &d->celsius, &d->mig) == 10)
            device_count++;
        else if (sscanf(line, "instance %d %95s %95s %lld %lld", &i->parent, i->uuid, i->name, &i->total, &i->used) == 5)
            instance_count++;
        else if (sscanf(line, "lost %d", &number) == 1)
            devices[number].lost = 1;
        else if (sscanf(line, "denied %d", &number) == 1)
            devices[number].denied = 1;
        else if (!strncmp(line, "driver gone", 11))
            gone = 1;
    }
    fclose(file);
    return gone ? NO_DRIVER : OK;
}

#define DEVICE(number) ((void *)(size_t)(1 + (number)))
#define INSTANCE(number) ((void *)(size_t)(1001 + (number)))
#define IS_INSTANCE(handle) ((size_t)(handle) > 1000)
#define NUMBER(handle) ((int)((size_t)(handle) - (IS_INSTANCE(handle) ? 1001 : 1)))

static int look(void *handle, entry **found)
{
    int code = initialized ? load() : UNINITIALIZED;
    if (code)
        return code;
    *found = IS_INSTANCE(handle) ? &instances[NUMBER(handle)] : &devices[NUMBER(handle)];
    return (*found)->lost ? LOST : OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; int code = load(); initialized |= !code; return code; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NO_DRIVER ? "Driver Not Loaded" : "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "570.00"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { int code = load(); *count = device_count; return code; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    int code = load();
    *handle = DEVICE(index);
    return code ? code : devices[index].denied ? NO_PERMISSION : OK;
}

#define FIGURE(name, type, field, scale)                                                          \
    int name(void *handle, type *value)                                                           \
    {                                                                                             \
        entry *found;                                                                             \
        int code = look(handle, &found);                                                          \
        if (!code && (IS_INSTANCE(handle) || found->field < 0))                                   \
            code = NOT_SUPPORTED;                                                                 \
        if (!code)                                                                                \
            *value = (type)(found->field * scale);                                                \
        return code;                                                                              \
    }
FIGURE(nvmlDeviceGetPowerUsage, unsigned, mw, 1)
FIGURE(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, mj, 1)

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *value)
{
    entry *found;
    int code = look(handle, &found);
    if (!code && (sensor || found->celsius < 0))
        code = NOT_SUPPORTED;
    *value = code ? 0 : (unsigned)found->celsius;
    return code;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size)
{
    entry *found;
    int code = look(handle, &found);
    if (!code)
        snprintf(text, size, "%s", found->uuid);
    return code;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size)
{
    entry *found;
    int code = look(handle, &found);
    if (!code)
        snprintf(text, size, "%s", found->name);
    return code;
}

/* version 1 counts what the driver keeps for itself (here 1 MiB) as used, version 2 does not */
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *memory)
{
    entry *found;
    int code = look(handle, &found);
    if (!code && found->used < 0)
        code = NOT_SUPPORTED;
    if (!code)
        *memory = (memory_v1){found->total, found->total - found->used, found->used + (1 << 20)};
    return code;
}

#if ABI >= 2
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *memory)
{
    entry *found;
    int code = look(handle, &found);
    if (memory->version != (sizeof(memory_v2) | 2u << 24))
        return 25;
    if (!code && found->used < 0)
        code = NOT_SUPPORTED;
    if (!code)
        *memory = (memory_v2){memory->version, found->total, 1 << 20, found->total - found->used, found->used};
    return code;
}
#endif

int nvmlDeviceGetUtilizationRates(void *handle, rates *value)
{
    entry *found;
    int code = look(handle, &found);
    if (!code && (IS_INSTANCE(handle) || found->mig || found->busy < 0))
        code = NOT_SUPPORTED;
    if (!code)
        *value = (rates){(unsigned)found->busy, (unsigned)found->band};
    return code;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later)
{
    entry *found;
    int code = look(handle, &found);
    if (!code)
        *now = *later = (unsigned)found->mig;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
    entry *found;
    *count = 7;
    return look(handle, &found);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance)
{
    entry *found;
    int code = look(handle, &found), seen = 0;
    for (int i = 0; !code && i < instance_count; i++)
        if (instances[i].parent == NUMBER(handle) && seen++ == (int)index) {
            *instance = INSTANCE(i);
            return OK;
        }
    return code ? code : NOT_FOUND;
}

static int list(void *handle, char kind, unsigned *count, void *into, size_t size)
{
    entry *found;
    char line[512], where, type;
    int code = look(handle, &found), number, pid;
    long long bytes;
    unsigned room = *count, all = 0;
    FILE *file = code ? NULL : open_state();
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "process %c%d %c %d %lld", &where, &number, &type, &pid, &bytes) != 5)
            continue;
        if (type != kind || number != NUMBER(handle) || (where == 'i') != IS_INSTANCE(handle))
            continue;
        if (into && all < room) {
            process_v2 one = {(unsigned)pid, (unsigned long long)bytes, ~0u, ~0u};
            memcpy((char *)into + all * size, &one, size); /* version 1 is the beginning of version 2 */
        }
        all++;
    }
    if (file)
        fclose(file);
    *count = all;
    return code ? code : all > room || (!into && all) ? TOO_SMALL : OK;
}

#define LISTS(kind, letter)                                                                                       \
    int nvmlDeviceGet##kind##RunningProcesses(void *h, unsigned *n, process_v1 *p) { return list(h, letter, n, p, 16); }
#define LISTS_V2(kind, letter)                                                                                    \
    int nvmlDeviceGet##kind##RunningProcesses_v2(void *h, unsigned *n, process_v2 *p) { return list(h, letter, n, p, 24); }
#define LISTS_V3(kind, letter)                                                                                    \
    int nvmlDeviceGet##kind##RunningProcesses_v3(void *h, unsigned *n, process_v2 *p) { return list(h, letter, n, p, 24); }
LISTS(Compute, 'C')
LISTS(Graphics, 'G')
#if ABI >= 2
LISTS_V2(Compute, 'C')
LISTS_V2(Graphics, 'G')
#endif
#if ABI >= 3
LISTS_V3(Compute, 'C')
LISTS_V3(Graphics, 'G')
#endif

int nvmlDeviceGetProcessUtilization(void *handle, sample *into, unsigned *count, unsigned long long since)
{
    entry *found;
    char line[512];
    int code = look(handle, &found), number;
    sample one = {0};
    unsigned room = *count, all = 0;
    FILE *file;
    if (!code && (IS_INSTANCE(handle) || found->mig || found->busy < 0))
        code = NOT_SUPPORTED;
    if (code)
        return code;
    if (!into) {
        *count = 100;
        return TOO_SMALL;
    }
    file = open_state();
    while (file && fgets(line, sizeof line, file)) {
        int rest = !strncmp(line, "rest", 4);
        if (sscanf(line, rest ? "rest %d %llu %u %u %u" : "sample %d %llu %u %u %u", &number, &one.stamp, &one.pid,
                   &one.sm, &one.mem) == 5 && number == NUMBER(handle) && (rest || one.stamp > since) && all < room)
            into[all++] = one;
    }
    if (file)
        fclose(file);
    *count = all;
    return all ? OK : NOT_FOUND;
}
