//! Reads plans; bench/indexplan_test.go says what one is.

use std::error::Error;
use std::hint::black_box;

use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent, compute_block_hash_for_seq,
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

    /// Where the words of a block are: its content, the hash of its tokens, its name.
    fn block_at(&self, sequence: usize, pos: usize) -> usize {
        let at = self.sequence_at(sequence);
        if pos < self.half() {
            HEADER + (self.words[at + 1] as usize * self.half() + pos) * BLOCK_WORDS
        } else {
            at + 2 + (pos - self.half()) * BLOCK_WORDS
        }
    }

    fn hash(&self, sequence: usize, pos: usize) -> LocalBlockHash {
        LocalBlockHash(self.words[self.block_at(sequence, pos) + 1])
    }

    fn name(&self, sequence: usize, pos: usize) -> ExternalSequenceBlockHash {
        ExternalSequenceBlockHash(self.words[self.block_at(sequence, pos) + 2])
    }

    /// Appends the tokens of a block.
    fn tokens(&self, sequence: usize, pos: usize, into: &mut Vec<u32>) {
        let content = self.words[self.block_at(sequence, pos)];
        for i in 0..u64::from(self.block_size() / 2) {
            let pair = split_mix_64(content.wrapping_add(i));
            into.extend([pair as u32, (pair >> 32) as u32]);
        }
    }

    /// The prompts that are asked for.
    pub fn prompts(&self) -> Vec<Vec<LocalBlockHash>> {
        let at = self.sequence_at(self.sequences());
        self.words[at..at + self.queries()]
            .iter()
            .map(|&s| (0..self.depth()).map(|pos| self.hash(s as usize, pos)).collect())
            .collect()
    }

    /// The events of a phase.
    pub fn events(&self, phase: usize) -> Feed {
        let at = self.step_at(phase);
        let (mut blocks, mut tokens) = (0, Vec::new());
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
                    (from..to).for_each(|pos| self.tokens(sequence, pos, &mut tokens));
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
        Feed {
            events,
            tokens,
            block_size: self.block_size(),
            blocks,
        }
    }

    fn store(&self, sequence: usize, from: usize, to: usize) -> KvCacheEventData {
        KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: (from > 0).then(|| self.name(sequence, from - 1)),
            start_position: Some(from as u32),
            blocks: (from..to)
                .map(|pos| KvCacheStoredBlockData {
                    block_hash: self.name(sequence, pos),
                    tokens_hash: LocalBlockHash(0),
                    mm_extra_info: None,
                })
                .collect(),
        })
    }

    fn removal(&self, sequence: usize, from: usize, to: usize) -> KvCacheEventData {
        KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: (from..to).rev().map(|pos| self.name(sequence, pos)).collect(),
        })
    }
}

/// Events as an ingress has decoded them: the hashes of the tokens, which lie in one list in the events' order, are still
/// to come.
pub struct Feed {
    events: Vec<RouterEvent>,
    tokens: Vec<u32>,
    block_size: u32,
    /// How many blocks the events name.
    pub blocks: usize,
}

impl Feed {
    /// Hands on one event after the other once its tokens are hashed, by one call for all its blocks.
    pub fn try_for_each<E>(self, mut apply: impl FnMut(RouterEvent) -> Result<(), E>) -> Result<(), E> {
        let mut tokens = self.tokens.as_slice();
        for mut event in self.events {
            if let KvCacheEventData::Stored(data) = &mut event.event.data {
                let hashes = next_hashes(&mut tokens, data.blocks.len(), self.block_size);
                for (block, hash) in data.blocks.iter_mut().zip(hashes) {
                    block.tokens_hash = hash;
                }
            }
            apply(event)?;
        }
        Ok(())
    }

    /// Hashes all tokens, and does nothing with the hashes.
    pub fn hash(&self) {
        let mut tokens = self.tokens.as_slice();
        for event in &self.events {
            if let KvCacheEventData::Stored(data) = &event.event.data {
                black_box(next_hashes(&mut tokens, data.blocks.len(), self.block_size));
            }
        }
    }
}

/// Takes the tokens of the next blocks off a list, and hashes them.
fn next_hashes(tokens: &mut &[u32], blocks: usize, block_size: u32) -> Vec<LocalBlockHash> {
    let (mine, others) = tokens.split_at(blocks * block_size as usize);
    *tokens = others;
    compute_block_hash_for_seq(mine, block_size, BlockHashOptions::default())
}

/// The finalizer of SplitMix64 behind one step of its state.
fn split_mix_64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
    z ^ (z >> 31)
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
