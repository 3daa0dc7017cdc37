// The default policy kv-aware as a scorer in C: plugins/examples/kv-aware/README.md
// has the formula. One source makes both guests of the benchmark: with
// -msimd128 a lane is two rows, without it one. README.md says how it is built.
//
// The order of operations is the native twin's, and -ffp-contract=off keeps
// each product rounded by itself: the scores have the twin's bits.

#include <stddef.h>
#include <stdint.h>

typedef struct {
	uint32_t magic, header_size, rows, capacity, stride, columns, column_starts, scores, mask, request, request_count;
} frame;

enum { MAGIC = 0x31465052, HEADER = 128, BAD_FRAME = -2, NO_COLUMN = -4 };

// Columns and request fields in the manifest's order.
enum { DEVICE, HOST, DISK, SHARED, WAITING, PREFILL, DECODE, ACTIVE, PREFERENCE, COLUMNS };
enum { BLOCKS, BLOCK_SIZE, SCALE, CREDIT, DECAY, ACTIVE_WEIGHT, HOST_WEIGHT, DISK_WEIGHT, SHARED_WEIGHT, FIELDS };

#ifdef __wasm_simd128__
#include <wasm_simd128.h>
typedef double lane __attribute__((vector_size(16)));
enum { ROWS = 2 };
static inline lane all(double v) { return (lane){v, v}; }
static inline lane larger(lane a, lane b) { return (lane)wasm_f64x2_pmax((v128_t)b, (v128_t)a); }   // a > b ? a : b
static inline lane smaller(lane a, lane b) { return (lane)wasm_f64x2_pmin((v128_t)b, (v128_t)a); }  // a < b ? a : b
static inline double smallest(lane a) { return a[1] < a[0] ? a[1] : a[0]; }
static inline double total(lane a) { return a[0] + a[1]; }
#else
typedef double lane;
enum { ROWS = 1 };
static inline lane all(double v) { return v; }
static inline lane larger(lane a, lane b) { return a > b ? a : b; }
static inline lane smaller(lane a, lane b) { return a < b ? a : b; }
static inline double smallest(lane a) { return a; }
static inline double total(lane a) { return a; }
#endif

// A turn of a loop is eight rows: a metered loop pays at its head.
enum { TURN = 8, LANES = TURN / ROWS };
#define UNROLL _Pragma("clang loop unroll(full)")

static inline const double *column(const frame *f, int i) {
	const uint32_t *starts = (const uint32_t *)((const char *)f + f->column_starts);
	return (const double *)((const char *)f + starts[i]);
}

static inline const double *request(const frame *f) { return (const double *)((const char *)f + f->request); }

static inline lane at(const double *c, uint32_t row) { return *(const lane *)(c + row); }

// all_kept tells whether the mask keeps all n rows.
static int all_kept(const uint8_t *mask, uint32_t n) {
	uint32_t row = 0;
	for (; row + 8 <= n; row += 8)
		if (*(const uint64_t *)(mask + row) != 0x0101010101010101) return 0;
	for (; row < n; row++)
		if (mask[row] != 1) return 0;
	return 1;
}

// least is the smallest value of the kept rows; 0 where none is.
static double least(const double *v, const uint8_t *mask, uint32_t n) {
	if (!all_kept(mask, n)) {
		double low = 0;
		int found = 0;
		for (uint32_t row = 0; row < n; row++)
			if (mask[row] == 1 && (!found || v[row] < low)) low = v[row], found = 1;
		return low;
	}
	// Every lane begins with the first row, so that a NaN there stays, as it does
	// row by row. Some are under way at once: one waits for the other's result.
	lane low[LANES];
	UNROLL for (int k = 0; k < LANES; k++) low[k] = all(v[0]);
	uint32_t row = 0;
	for (; row + TURN <= n; row += TURN)
		UNROLL for (int k = 0; k < LANES; k++) low[k] = smaller(at(v, row + k * ROWS), low[k]);
	UNROLL for (int k = 1; k < LANES; k++) low[0] = smaller(low[k], low[0]);
	double least = smallest(low[0]);
	for (; row < n; row++)
		if (v[row] < least) least = v[row];
	return least;
}

// ordinary tells whether every value is less than 2^964 from 0, and no NaN.
static int ordinary(const double *v, uint32_t n) {
	const lane far = all(0x1p60);
	lane odd = all(0);
	uint32_t row = 0;
	for (; row + TURN <= n; row += TURN)
		UNROLL for (int k = 0; k < LANES; k++) {
			lane w = at(v, row + k * ROWS) * far; // not finite where too great: then w - w is NaN
			odd += w - w;
		}
	double sum = total(odd);
	for (; row < n; row++) sum += v[row] * 0x1p60 - v[row] * 0x1p60;
	return sum == 0;
}

// score is the formula. Without decay every row has a decay of 1.
static inline __attribute__((always_inline)) void score(const frame *f, int with_decay) {
	const uint32_t n = f->rows;
	const double *restrict device = column(f, DEVICE), *restrict host = column(f, HOST), *restrict disk = column(f, DISK),
		*restrict shared = column(f, SHARED), *restrict waiting = column(f, WAITING), *restrict prefill = column(f, PREFILL),
		*restrict decode = column(f, DECODE), *restrict active = column(f, ACTIVE), *restrict prefer = column(f, PREFERENCE);
	double *restrict scores = (double *)((char *)f + f->scores);
	const double *q = request(f);
	const lane size = all(q[BLOCK_SIZE]), blocks = all(q[BLOCKS] > 1 ? q[BLOCKS] : 1), scale = all(q[SCALE]),
		credited = all(q[CREDIT]), slope = all(q[DECAY]), per_active = all(q[ACTIVE_WEIGHT]), in_host = all(q[HOST_WEIGHT]),
		on_disk = all(q[DISK_WEIGHT]), in_shared = all(q[SHARED_WEIGHT]), zero = all(0), one = all(1);
	const lane low = all(with_decay ? least(waiting, (const uint8_t *)f + f->mask, n) : 0);
	// The last turn may reach past the rows, never past the stride, which is a
	// multiple of 8 rows.
	for (uint32_t start = 0; start < n; start += TURN)
		UNROLL for (int k = 0; k < LANES; k++) {
			const uint32_t row = start + k * ROWS;
			lane weight = credited;
			if (with_decay) {
				lane excess = larger(at(waiting, row) - low, zero) / size;
				weight = credited * (one / (one + slope * (excess / blocks)));
			}
			lane credit = weight * at(device, row) + in_host * at(host, row);
			credit += on_disk * at(disk, row);
			credit += in_shared * at(shared, row);
			lane pre = larger(at(prefill, row) / size - credit, zero);
			lane cost = scale * pre + at(decode, row);
			cost += per_active * at(active, row);
			*(lane *)(scores + row) = -(cost * at(prefer, row));
		}
}

__attribute__((export_name("rp_score"))) int32_t rp_score(const frame *f) {
	// Where the slope is 0 and no difference so great that it is not finite,
	// decay is exactly 1: the Go example goes the same short way.
	const double *q = request(f);
	if (q[DECAY] == 0 && q[BLOCK_SIZE] >= 1 && ordinary(column(f, WAITING), f->rows))
		score(f, 0);
	else
		score(f, 1);
	return 0;
}

__attribute__((export_name("rp_abi_v1"))) int32_t rp_abi_v1(void) { return 0; }

__attribute__((export_name("rp_configure"))) int32_t rp_configure(const char *config, int32_t size) {
	(void)config, (void)size;
	return 0; // the weights come as request fields
}

__attribute__((export_name("rp_bind"))) int32_t rp_bind(const frame *f, int32_t capacity) {
	(void)capacity;
	if (f->magic != MAGIC || f->header_size < HEADER || f->columns != COLUMNS || f->request_count != FIELDS) return BAD_FRAME;
	for (int i = 0; i < COLUMNS; i++)
		if (column(f, i) == (const double *)f) return NO_COLUMN;
	return 0;
}

extern char __heap_base;

// rp_alloc hands out memory behind the data and never takes it back.
__attribute__((export_name("rp_alloc"))) uintptr_t rp_alloc(uint32_t size) {
	enum { PAGE = 65536, ALIGN = 64 };
	static uintptr_t next;
	if (next == 0) next = (uintptr_t)&__heap_base;
	const uint64_t start = ((uint64_t)next + ALIGN - 1) / ALIGN * ALIGN, end = start + size;
	const uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * PAGE;
	if (end > UINT32_MAX) return 0;
	if (end > have && __builtin_wasm_memory_grow(0, (end - have + PAGE - 1) / PAGE) == SIZE_MAX) return 0;
	next = (uintptr_t)end;
	return (uintptr_t)start;
}
