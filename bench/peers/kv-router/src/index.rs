//! The indexes that are measured.

use std::error::Error;
use std::sync::Arc;

use dynamo_kv_router::indexer::SyncIndexer;
use dynamo_kv_router::protocols::{LocalBlockHash, OverlapScores, RouterEvent};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree, ThreadPoolIndexer};
use tokio::runtime::{Builder, Runtime};

use crate::plan::Feed;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// How many events are handed over before they are waited for. What a queue
/// without bound has grown to would count as memory of the index.
const WAITING: usize = 4096;

/// What is measured.
pub trait Index {
    /// Takes events, and returns when all are applied.
    fn apply(&mut self, feed: Feed) -> Outcome<()>;

    /// Takes one event, and returns when it is applied.
    fn take(&mut self, event: RouterEvent) -> Outcome<()>;

    /// Finds who has a prompt, of which nothing may be left.
    fn find(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores;
}

/// ConcurrentRadixTreeCompressed behind two event threads.
pub struct Crtc {
    pool: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    runtime: Runtime,
}

impl Crtc {
    pub fn new(block_size: u32) -> Outcome<Crtc> {
        Ok(Crtc {
            pool: ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 2, block_size),
            runtime: Builder::new_current_thread().build()?,
        })
    }

    /// What readers on other threads ask.
    pub fn tree(&self) -> Arc<ConcurrentRadixTreeCompressed> {
        self.pool.backend_arc()
    }
}

impl Index for Crtc {
    fn apply(&mut self, feed: Feed) -> Outcome<()> {
        let mut queued = 0;
        feed.try_for_each(|event| -> Outcome<()> {
            queued += 1;
            if queued % WAITING == 0 {
                self.runtime.block_on(self.pool.flush_and_wait())?;
            }
            Ok(self.pool.enqueue_event(event)?)
        })?;
        Ok(self.runtime.block_on(self.pool.flush_and_wait())?)
    }

    fn take(&mut self, event: RouterEvent) -> Outcome<()> {
        self.pool.enqueue_event(event)?;
        Ok(self.runtime.block_on(self.pool.flush_and_wait())?)
    }

    fn find(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores {
        self.pool.backend().find_matches(prompt, false)
    }
}

impl Index for RadixTree {
    fn apply(&mut self, feed: Feed) -> Outcome<()> {
        feed.try_for_each(|event| self.take(event))
    }

    fn take(&mut self, event: RouterEvent) -> Outcome<()> {
        Ok(self.apply_event(event)?)
    }

    fn find(&self, prompt: &mut Vec<LocalBlockHash>) -> OverlapScores {
        self.find_matches(std::mem::take(prompt), false)
    }
}
