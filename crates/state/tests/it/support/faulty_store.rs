//! A store with simulated faults: delayed, lost and repeated requests, and paused processes. All faults follow from one
//! seed.

use super::timeline::Timeline;
use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use konverge_state::{
    Clock,
    store::{Created, Key, Store, StoreError},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// SplitMix64: small, and the same everywhere.
#[derive(Clone)]
pub struct Random(Arc<Mutex<u64>>);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Any number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().expect("no panic while the lock is held");
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below a bound.
    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True so many times in a thousand.
    pub fn permille(&self, rate: u64) -> bool {
        self.below(1000) < rate
    }

    /// Up to so many milliseconds.
    pub fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }
}

/// How bad it is: rates in a thousand per request.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub dropped: u64,
    pub answer_lost: u64,
    pub late: u64,
    pub doubled: u64,
    pub slow: u64,
    pub stopped: u64,
}

/// One process: its store, its clocks.
pub struct Process {
    inner: Arc<dyn Store>,
    timeline: Arc<Timeline>,
    random: Random,
    weather: Weather,
    stopped_until: Mutex<Duration>,
    /// How wrong its wall clock is, in seconds.
    wrong_by: i64,
}

impl Process {
    /// A process in some weather.
    pub fn new(
        inner: Arc<dyn Store>,
        timeline: Arc<Timeline>,
        random: Random,
        weather: Weather,
    ) -> Arc<Self> {
        let wrong_by = i64::try_from(random.below(20 * 3600)).expect("small") - 10 * 3600;
        Arc::new(Self {
            inner,
            timeline,
            random,
            weather,
            stopped_until: Mutex::default(),
            wrong_by,
        })
    }

    /// Waits while the process is stopped; now and then it stops here, for up to three minutes.
    async fn gate(&self) {
        if self.random.permille(self.weather.stopped) {
            let until = self.timeline.now() + self.random.millis(180_000);
            *self
                .stopped_until
                .lock()
                .expect("no panic while the lock is held") = until;
        }
        loop {
            let until = *self
                .stopped_until
                .lock()
                .expect("no panic while the lock is held");
            if until <= self.timeline.now() {
                return;
            }
            self.timeline.until(until).await;
        }
    }

    async fn on_the_way(&self) {
        let most = if self.random.permille(self.weather.slow) {
            45_000
        } else {
            400
        };
        self.timeline.sleep(self.random.millis(most)).await;
    }

    fn failure(&self, key: &Key) -> StoreError {
        StoreError::Unavailable {
            url: "faulty:".to_owned(),
            key: key.to_string(),
            why: "no answer".into(),
        }
    }

    async fn read<T>(
        &self,
        key: &Key,
        read: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.gate().await;
        self.on_the_way().await;
        let answer = if self.random.permille(self.weather.dropped) {
            Err(self.failure(key))
        } else {
            read().await
        };
        self.on_the_way().await;
        self.gate().await;
        answer
    }
}

#[async_trait]
impl Store for Process {
    fn url(&self) -> &str {
        "faulty:"
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.read(key, async || self.inner.get(key).await).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        self.read(prefix, async || self.inner.list(prefix).await).await
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.gate().await;
        self.on_the_way().await;
        let dice = self.random.below(1000);
        let Weather {
            dropped,
            answer_lost,
            late,
            doubled,
            ..
        } = self.weather;
        let answer = if dice < dropped {
            Err(self.failure(key))
        } else if dice < dropped + answer_lost {
            self.inner.create(key, content).await?;
            Err(self.failure(key))
        } else if dice < dropped + answer_lost + late {
            let (inner, timeline, key) = (Arc::clone(&self.inner), Arc::clone(&self.timeline), key.clone());
            let delay = self.random.millis(120_000);
            let failure = self.failure(&key);
            // Outlives the process: it is in the network.
            tokio::spawn(async move {
                timeline.sleep(delay).await;
                let _ = inner.create(&key, content).await;
            });
            Err(failure)
        } else if dice < dropped + answer_lost + late + doubled {
            self.inner.create(key, content.clone()).await?;
            self.inner.create(key, content).await
        } else {
            self.inner.create(key, content).await
        };
        self.on_the_way().await;
        self.gate().await;
        answer
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.read(key, async || self.inner.delete(key).await).await
    }
}

#[async_trait]
impl Clock for Process {
    fn monotonic(&self) -> Duration {
        self.timeline.stir();
        self.timeline.now()
    }

    fn wall_clock(&self) -> Timestamp {
        let right = self.timeline.now() + Duration::from_secs(1_000_000);
        let right = Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(right).expect("a short time");
        right + jiff::SignedDuration::from_secs(self.wrong_by)
    }

    async fn sleep(&self, time: Duration) {
        self.timeline.until(self.timeline.now() + time).await;
        self.gate().await;
    }
}
