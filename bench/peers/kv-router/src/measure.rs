//! The parts of a measurement, as bench/indexexact_test.go has them for ours.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use dynamo_kv_router::RadixTree;
use dynamo_kv_router::indexer::SyncIndexer;

use crate::clock::{Spread, micros, per, process_time, thread_time, used};
use crate::index::{Crtc, Index, Outcome};
use crate::plan::{Plan, cleared};

/// Figures by name.
pub type Told = Vec<(&'static str, f64)>;

/// Measures the index for a single thread, which has no readers beside.
pub fn radix(plan: &Plan, part: &str) -> Outcome<Told> {
    let mut told = Told::new();
    match part {
        "batches" => {
            let mut index = fill(
                plan,
                || Ok(RadixTree::new()),
                ["store16-cpu-ns/block", "hash16-cpu-ns/block", "bytes16/block"],
                &mut told,
            )?;
            alone(&index, plan, &mut told);
            index.apply(plan.events(1))?;
            remove(&mut index, plan, "remove16-cpu-ns/block", &mut told)?;
        }
        "singles" => {
            let mut index = fill(
                plan,
                || Ok(RadixTree::new()),
                ["store1-cpu-ns/block", "hash1-cpu-ns/block", "bytes1/block"],
                &mut told,
            )?;
            remove(&mut index, plan, "remove1-cpu-ns/block", &mut told)?;
        }
        "churn" => {
            let mut index = RadixTree::new();
            index.apply(plan.events(0))?;
            hits(&index, plan, ["workers/query", "blocks/query"], &mut told);
            index.apply(plan.events(1))?;
            hits(&index, plan, ["end-workers/query", "end-blocks/query"], &mut told);
            clear(&mut index, plan, &mut told)?;
        }
        _ => return Err(unknown(part).into()),
    }
    Ok(told)
}

/// Measures the concurrent index.
pub fn crtc(plan: &Plan, part: &str) -> Outcome<Told> {
    let make = || Crtc::new(plan.block_size());
    let mut told = Told::new();
    match part {
        "batches" => {
            let mut index = fill(plan, make, ["store16-cpu-ns/block", "hash16-cpu-ns/block", "bytes16/block"], &mut told)?;
            alone(&index, plan, &mut told);
            let feed = plan.events(1);
            let blocks = feed.blocks;
            let both = beside(&mut index, plan, |index| index.apply(feed))?;
            told.push(("beside-remove-cpu-ns/block", per(both.writer, blocks)));
            told.push(("beside-find-cpu-us", micros(both.reader)));
            told.push(("beside-find-worst-us", micros(both.took.worst)));
            remove(&mut index, plan, "remove16-cpu-ns/block", &mut told)?;
        }
        "singles" => {
            let mut index = fill(plan, make, ["store1-cpu-ns/block", "hash1-cpu-ns/block", "bytes1/block"], &mut told)?;
            remove(&mut index, plan, "remove1-cpu-ns/block", &mut told)?;
        }
        "churn" => churn(make()?, plan, &mut told)?,
        _ => return Err(unknown(part).into()),
    }
    Ok(told)
}

fn unknown(part: &str) -> String {
    format!("part {part:?}: must be batches, singles or churn")
}

/// Measures the hashing of the first phase's tokens, then that phase, and tells what is found in the full index. The
/// events are made and gone between the two looks at the memory.
fn fill<I: Index>(
    plan: &Plan,
    make: impl Fn() -> Outcome<I>,
    [cpu, hashing, bytes]: [&'static str; 3],
    told: &mut Told,
) -> Outcome<I> {
    let before = used();
    let mut index = make()?;
    let feed = plan.events(0);
    let blocks = feed.blocks;
    let begun = process_time();
    feed.hash();
    told.push((hashing, per(process_time() - begun, blocks)));
    let begun = process_time();
    index.apply(feed)?;
    told.push((cpu, per(process_time() - begun, blocks)));
    told.push((bytes, (used() - before) / blocks as f64));
    hits(&index, plan, ["workers/query", "blocks/query"], told);
    Ok(index)
}

/// Measures the last phase, and tells what is found then.
fn remove(index: &mut impl Index, plan: &Plan, cpu: &'static str, told: &mut Told) -> Outcome<()> {
    let feed = plan.events(2);
    let blocks = feed.blocks;
    let begun = process_time();
    index.apply(feed)?;
    told.push((cpu, per(process_time() - begun, blocks)));
    hits(index, plan, ["end-workers/query", "end-blocks/query"], told);
    Ok(())
}

/// Tells, in the mean of a prompt, how many workers have some of it and how many
/// blocks those have.
fn hits(index: &impl Index, plan: &Plan, names: [&'static str; 2], told: &mut Told) {
    let mut prompts = plan.prompts();
    let (mut workers, mut blocks) = (0, 0);
    for prompt in &mut prompts {
        let found = index.find(prompt);
        workers += found.scores.len();
        blocks += found.scores.values().map(|&n| n as usize).sum::<usize>();
    }
    let n = prompts.len() as f64;
    told.push((names[0], workers as f64 / n));
    told.push((names[1], blocks as f64 / n));
}

/// Measures finds in CPU time of this thread.
fn alone(index: &impl Index, plan: &Plan, told: &mut Told) {
    let mut prompts = plan.prompts();
    let begun = thread_time();
    for prompt in &mut prompts {
        black_box(index.find(prompt));
    }
    told.push(("find-cpu-us", micros(thread_time() - begun) / prompts.len() as f64));
}

fn churn(mut index: Crtc, plan: &Plan, told: &mut Told) -> Outcome<()> {
    let feed = plan.events(0);
    let blocks = feed.blocks;
    let (begun, clock) = (process_time(), Instant::now());
    index.apply(feed)?;
    told.push(("split-store-wall-ns/block", per(clock.elapsed(), blocks)));
    told.push(("split-store-cpu-ns/block", per(process_time() - begun, blocks)));
    hits(&index, plan, ["workers/query", "blocks/query"], told);

    let feed = plan.events(1);
    let blocks = feed.blocks;
    let both = beside(&mut index, plan, |index| index.apply(feed))?;
    told.push(("churn-cpu-ns/block", per(both.writer, blocks)));
    told.push(("churn-find-p50-us", micros(both.took.share(0.5))));
    told.push(("churn-find-p99.9-us", micros(both.took.share(0.999))));
    told.push(("churn-find-worst-us", micros(both.took.worst)));
    hits(&index, plan, ["end-workers/query", "end-blocks/query"], told);

    let n = clear(&mut index, plan, told)?;
    let both = beside(&mut index, plan, |index| empty(index, n, n))?;
    told.push(("clear-find-worst-us", micros(both.took.worst)));
    Ok(())
}

/// Empties some workers one by one, and returns how many.
fn clear(index: &mut impl Index, plan: &Plan, told: &mut Told) -> Outcome<usize> {
    let n = (plan.workers() / 2).clamp(1, 8);
    let begun = process_time();
    empty(index, 0, n)?;
    told.push(("clear-cpu-us", micros(process_time() - begun) / n as f64));
    Ok(n)
}

fn empty(index: &mut impl Index, from: usize, n: usize) -> Outcome<()> {
    (from..from + n).try_for_each(|worker| index.take(cleared(worker)))
}

/// What a reader and the writers cost while both are at work.
struct Beside {
    /// CPU time of the process but for the reader's thread.
    writer: Duration,
    /// CPU time of a find.
    reader: Duration,
    /// Of each find, on the clock.
    took: Spread,
}

/// Has a thread ask without pause while write is at work. The clock of the
/// process is read while that thread does not run.
fn beside(index: &mut Crtc, plan: &Plan, write: impl FnOnce(&mut Crtc) -> Outcome<()>) -> Outcome<Beside> {
    let (tree, prompts, stop) = (index.tree(), plan.prompts(), AtomicBool::new(false));
    let (begun, first) = mpsc::channel();
    let all = process_time();
    let (written, took, reader) = std::thread::scope(|scope| {
        let ask = scope.spawn(|| {
            let cpu = thread_time();
            let mut took = Spread::new();
            for prompt in prompts.iter().cycle() {
                let from = Instant::now();
                black_box(tree.find_matches(prompt, false));
                took.add(from.elapsed());
                if took.n == 1 {
                    let _ = begun.send(());
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            (took, thread_time() - cpu)
        });
        let _ = first.recv();
        let written = write(index);
        stop.store(true, Ordering::Relaxed);
        let (took, reader) = ask.join().expect("the reader ends");
        (written, took, reader)
    });
    written?;
    let writer = (process_time() - all).saturating_sub(reader);
    Ok(Beside {
        writer,
        reader: reader / took.n as u32,
        took,
    })
}
