//! Reads plans; bench/indexplan_test.go says what one is.

use std::error::Error;

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};

const MAGIC: u64 = 0x315844494b565a31;
const HEADER: usize = 10;
const PHASES: usize = 3;
const BLOCK_WORDS: usize = 3;
const REMOVAL: u64 = 1 << 63;

pub struct Plan {
    words: Vec<u64>,
}

impl Plan {
    pub fn read(file: &str) -> Result<Plan, Box<dyn Error>> {
        let bytes = std::fs::read(file)?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
            .collect();
        let plan = Plan { words };
        if plan.words.len() < HEADER || plan.words[0] != MAGIC || plan.words.len() != plan.step_at(PHASES) {
            return Err(format!("{file}: no plan of an index").into());
        }
        Ok(plan)
    }

    pub fn workers(&self) -> usize {
        self.words[1] as usize
    }
    fn depth(&self) -> usize {
        self.words[2] as usize
    }
    fn half(&self) -> usize {
        self.depth() / 2
    }
    pub fn block_size(&self) -> u32 {
        self.words[3] as u32
    }
    fn families(&self) -> usize {
        self.words[4] as usize
    }
    fn sequences(&self) -> usize {
        self.words[5] as usize
    }
    fn queries(&self) -> usize {
        self.words[6] as usize
    }
    fn steps(&self, phase: usize) -> usize {
        self.words[7 + phase] as usize
    }

    fn sequence_at(&self, sequence: usize) -> usize {
        let family = self.half() * BLOCK_WORDS;
        HEADER + self.families() * family + sequence * (2 + family)
    }

    fn step_at(&self, phase: usize) -> usize {
        let before: usize = (0..phase).map(|p| 2 * self.steps(p)).sum();
        self.sequence_at(self.sequences()) + self.queries() + before
    }

    /// The hash of a block's tokens and its name.
    fn block(&self, sequence: usize, pos: usize) -> (LocalBlockHash, ExternalSequenceBlockHash) {
        let at = self.sequence_at(sequence);
        let word = if pos < self.half() {
            HEADER + (self.words[at + 1] as usize * self.half() + pos) * BLOCK_WORDS
        } else {
            at + 2 + (pos - self.half()) * BLOCK_WORDS
        };
        (
            LocalBlockHash(self.words[word + 1]),
            ExternalSequenceBlockHash(self.words[word + 2]),
        )
    }

    /// The prompts that are asked for.
    pub fn prompts(&self) -> Vec<Vec<LocalBlockHash>> {
        let at = self.sequence_at(self.sequences());
        self.words[at..at + self.queries()]
            .iter()
            .map(|&s| (0..self.depth()).map(|pos| self.block(s as usize, pos).0).collect())
            .collect()
    }

    /// The events of a phase, and how many blocks they name.
    pub fn events(&self, phase: usize) -> (Vec<RouterEvent>, usize) {
        let at = self.step_at(phase);
        let mut blocks = 0;
        let events = self.words[at..at + 2 * self.steps(phase)]
            .chunks_exact(2)
            .enumerate()
            .map(|(id, step)| {
                let sequence = (step[0] & !REMOVAL) as usize;
                let (from, to) = ((step[1] >> 32) as usize, step[1] as u32 as usize);
                blocks += to - from;
                let data = if step[0] & REMOVAL != 0 {
                    self.removal(sequence, from, to)
                } else {
                    self.store(sequence, from, to)
                };
                let worker = self.words[self.sequence_at(sequence)];
                RouterEvent::new(
                    worker,
                    KvCacheEvent {
                        event_id: id as u64,
                        dp_rank: 0,
                        data,
                    },
                )
            })
            .collect();
        (events, blocks)
    }

    fn store(&self, sequence: usize, from: usize, to: usize) -> KvCacheEventData {
        KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: (from > 0).then(|| self.block(sequence, from - 1).1),
            start_position: Some(from as u32),
            blocks: (from..to)
                .map(|pos| {
                    let (tokens_hash, block_hash) = self.block(sequence, pos);
                    KvCacheStoredBlockData {
                        block_hash,
                        tokens_hash,
                        mm_extra_info: None,
                    }
                })
                .collect(),
        })
    }

    fn removal(&self, sequence: usize, from: usize, to: usize) -> KvCacheEventData {
        KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: (from..to).rev().map(|pos| self.block(sequence, pos).1).collect(),
        })
    }
}

/// The event by which a worker says that it holds nothing.
pub fn cleared(worker: usize) -> RouterEvent {
    RouterEvent::new(
        worker as u64,
        KvCacheEvent {
            event_id: 0,
            dp_rank: 0,
            data: KvCacheEventData::Cleared,
        },
    )
}
