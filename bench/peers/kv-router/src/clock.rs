//! CPU time, memory, and how long finds take.

use std::time::Duration;

/// CPU time of the process with all its threads. It is late by what other
/// threads that run are about to be charged for.
pub fn process_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is there to be written.
    assert_eq!(
        unsafe { libc::clock_gettime(id, &mut t) },
        0,
        "it fails for bad arguments alone"
    );
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Bytes that the allocator has given out.
pub fn used() -> f64 {
    // SAFETY: it only reads the allocator's books.
    let m = unsafe { libc::mallinfo2() };
    (m.uordblks + m.hblkhd) as f64
}

pub fn micros(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}

/// Nanoseconds for each of n.
pub fn per(d: Duration, n: usize) -> f64 {
    d.as_secs_f64() * 1e9 / n as f64
}

/// Counts durations in bins of less than 2 % of their value.
pub struct Spread {
    bins: Vec<u64>,
    pub n: u64,
    pub worst: Duration,
}

impl Spread {
    pub fn new() -> Spread {
        Spread {
            bins: vec![0; 64 * 64],
            n: 0,
            worst: Duration::ZERO,
        }
    }

    pub fn add(&mut self, d: Duration) {
        self.n += 1;
        self.worst = self.worst.max(d);
        let ns = d.as_nanos() as u64;
        let shift = (64 - ns.leading_zeros() as usize).saturating_sub(7);
        self.bins[64 * shift + (ns >> shift) as usize] += 1;
    }

    /// The duration below which a share of all are.
    pub fn share(&self, q: f64) -> Duration {
        let mut left = (q * self.n as f64) as i64;
        for (i, n) in self.bins.iter().enumerate() {
            left -= *n as i64;
            if left < 0 {
                let shift = (i / 64).saturating_sub(1);
                return Duration::from_nanos(((i - 64 * shift) << shift) as u64);
            }
        }
        self.worst
    }
}
