/* A co-simulation unit for tests: a tank with an inflow valve and a free outflow,
 *     area dL/dt = 0.02 valve - 0.01 sqrt(L),   0.1 s Euler steps.
 * It refuses a step that ends above 2 m. The same file is a unit of FMI 2.0 and, with
 * -DFMI3, of FMI 3.0. */
#include <math.h>
#include <stdlib.h>

enum { LEVEL = 1, FLOW = 2, VALVE = 3, AREA = 4, START = 5 };

typedef struct { double v[6]; } Tank;

static void begin(Tank *t) {
    t->v[VALVE] = 0.5;
    t->v[AREA] = 1.0;
    t->v[START] = 1.0;
}

static void outputs(Tank *t) { t->v[FLOW] = 0.01 * sqrt(t->v[LEVEL]); }

static void initialised(Tank *t) {
    t->v[LEVEL] = t->v[START];
    outputs(t);
}

static int advance(Tank *t, double period) {
    int n = (int)(period / 0.1 + 0.5);
    for (int i = 0; i < n; i++) {
        double rate = (0.02 * t->v[VALVE] - 0.01 * sqrt(t->v[LEVEL])) / t->v[AREA];
        t->v[LEVEL] = fmax(t->v[LEVEL] + 0.1 * rate, 0.0);
    }
    outputs(t);
    return t->v[LEVEL] <= 2.0;
}

#ifdef FMI3
#include "fmi3Functions.h"
#define OK {return fmi3OK;}
const char * fmi3GetVersion(void) { return fmi3Version; }
fmi3Status fmi3SetDebugLogging(fmi3Instance c, fmi3Boolean b, size_t n, const fmi3String s[]) OK
fmi3Instance fmi3InstantiateModelExchange(fmi3String a, fmi3String b, fmi3String c, fmi3Boolean d,
    fmi3Boolean e, fmi3InstanceEnvironment f, fmi3LogMessageCallback g) { return NULL; }
fmi3Instance fmi3InstantiateScheduledExecution(fmi3String a, fmi3String b, fmi3String c,
    fmi3Boolean d, fmi3Boolean e, fmi3InstanceEnvironment f, fmi3LogMessageCallback g,
    fmi3ClockUpdateCallback h, fmi3LockPreemptionCallback i, fmi3UnlockPreemptionCallback j) {
    return NULL;
}
fmi3Instance fmi3InstantiateCoSimulation(fmi3String a, fmi3String b, fmi3String c, fmi3Boolean d,
    fmi3Boolean e, fmi3Boolean f, fmi3Boolean g, const fmi3ValueReference h[], size_t i,
    fmi3InstanceEnvironment j, fmi3LogMessageCallback k, fmi3IntermediateUpdateCallback l) {
    Tank *t = calloc(1, sizeof(Tank));
    begin(t);
    return t;
}
void fmi3FreeInstance(fmi3Instance c) { free(c); }
fmi3Status fmi3EnterInitializationMode(fmi3Instance c, fmi3Boolean a, fmi3Float64 b, fmi3Float64 d,
    fmi3Boolean e, fmi3Float64 f) OK
fmi3Status fmi3ExitInitializationMode(fmi3Instance c) { initialised(c); return fmi3OK; }
fmi3Status fmi3Reset(fmi3Instance c) { begin(c); return fmi3OK; }
fmi3Status fmi3Terminate(fmi3Instance c) OK
fmi3Status fmi3SetFloat64(fmi3Instance c, const fmi3ValueReference vr[], size_t n,
    const fmi3Float64 value[], size_t m) {
    for (size_t i = 0; i < n; i++) ((Tank *)c)->v[vr[i]] = value[i];
    return fmi3OK;
}
fmi3Status fmi3GetFloat64(fmi3Instance c, const fmi3ValueReference vr[], size_t n,
    fmi3Float64 value[], size_t m) {
    for (size_t i = 0; i < n; i++) value[i] = ((Tank *)c)->v[vr[i]];
    return fmi3OK;
}
fmi3Status fmi3DoStep(fmi3Instance c, fmi3Float64 now, fmi3Float64 period, fmi3Boolean a,
    fmi3Boolean *event, fmi3Boolean *end, fmi3Boolean *early, fmi3Float64 *last) {
    *event = *end = *early = 0;
    *last = now + period;
    return advance(c, period) ? fmi3OK : fmi3Discard;
}
#else
#include "fmi2Functions.h"
const char * fmi2GetTypesPlatform(void) { return fmi2TypesPlatform; }
const char * fmi2GetVersion(void) { return fmi2Version; }
fmi2Component fmi2Instantiate(fmi2String name, fmi2Type kind, fmi2String guid, fmi2String resources,
    const fmi2CallbackFunctions *functions, fmi2Boolean visible, fmi2Boolean logging) {
    Tank *t = calloc(1, sizeof(Tank));
    begin(t);
    return t;
}
void fmi2FreeInstance(fmi2Component c) { free(c); }
fmi2Status fmi2SetupExperiment(fmi2Component c, fmi2Boolean a, fmi2Real b, fmi2Real start,
    fmi2Boolean d, fmi2Real stop) { return fmi2OK; }
fmi2Status fmi2EnterInitializationMode(fmi2Component c) { return fmi2OK; }
fmi2Status fmi2ExitInitializationMode(fmi2Component c) { initialised(c); return fmi2OK; }
#ifdef NO_RESET
fmi2Status fmi2Reset(fmi2Component c) { return fmi2Error; }
#else
fmi2Status fmi2Reset(fmi2Component c) { begin(c); return fmi2OK; }
#endif
fmi2Status fmi2Terminate(fmi2Component c) { return fmi2OK; }
fmi2Status fmi2SetReal(fmi2Component c, const fmi2ValueReference vr[], size_t n,
    const fmi2Real value[]) {
    for (size_t i = 0; i < n; i++) ((Tank *)c)->v[vr[i]] = value[i];
    return fmi2OK;
}
fmi2Status fmi2GetReal(fmi2Component c, const fmi2ValueReference vr[], size_t n, fmi2Real value[]) {
    for (size_t i = 0; i < n; i++) value[i] = ((Tank *)c)->v[vr[i]];
    return fmi2OK;
}
fmi2Status fmi2DoStep(fmi2Component c, fmi2Real now, fmi2Real period, fmi2Boolean a) {
    return advance(c, period) ? fmi2OK : fmi2Discard;
}
#endif
