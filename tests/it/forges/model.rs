//! What must happen, by the words of the guide alone: a stack is applied if every change of its plan was shown by a
//! merged pull request whose review this stack has not used yet, or if somebody approved just this plan by its digest.
//! Else it is stopped as a whole. What an apply did not do stays pending.

use std::collections::{BTreeMap, BTreeSet};

/// The stacks, and the maps of each.
pub const STACKS: usize = 3;
pub const MAPS: usize = 2;

/// A map of a stack.
pub type Slot = (usize, usize);
/// The value of each map that there is.
pub type Content = BTreeMap<Slot, u64>;
/// What a pull request or a push sets; `None` removes the map.
pub type Change = BTreeMap<Slot, Option<u64>>;

/// What a plan does to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Create(u64),
    Update(u64),
    Delete,
}

/// The plan of a stack.
pub type Plan = BTreeMap<Slot, Action>;

/// A commit of `main`.
#[derive(Debug, Clone)]
pub struct Commit {
    pub content: Content,
    /// The pull requests in it.
    merged: BTreeSet<u64>,
}

/// A pull request.
#[derive(Debug, Clone)]
pub struct Pull {
    /// What `main` held where it began.
    pub base: Content,
    pub change: Change,
    pub head: String,
    pub is_merged: bool,
    /// What the last preview of each head showed.
    shown: BTreeMap<String, BTreeMap<usize, Plan>>,
}

/// A preview as it was asked for.
#[derive(Debug, Clone)]
pub struct Preview {
    pub number: u64,
    pub head: String,
    pub stacks: BTreeSet<usize>,
    pub content: Content,
}

/// What is recorded of a stack.
#[derive(Debug, Clone, Default)]
struct Recorded {
    content: Content,
    commit: usize,
    used: BTreeSet<u64>,
}

/// The repository, what stands in the cluster, and what is recorded.
#[derive(Debug)]
pub struct Model {
    pub main: Vec<Commit>,
    pub live: Content,
    pub pulls: BTreeMap<u64, Pull>,
    recorded: BTreeMap<usize, Recorded>,
}

/// What an apply does with the stacks that are pending for it.
#[derive(Debug, Default)]
pub struct Expected {
    pub applied: BTreeSet<usize>,
    /// With the plan that somebody may approve.
    pub stopped: BTreeMap<usize, Plan>,
}

/// The content with a change.
pub fn changed(content: &Content, change: &Change) -> Content {
    let mut content = content.clone();
    for (slot, value) in change {
        match value {
            Some(value) => content.insert(*slot, *value),
            None => content.remove(slot),
        };
    }
    content
}

/// The maps of one stack.
pub fn of_stack(content: &Content, stack: usize) -> Content {
    let maps = content.iter().filter(|((of, _), _)| *of == stack);
    maps.map(|(slot, value)| (*slot, *value)).collect()
}

/// The plan of a stack: what differs.
pub fn plan(live: &Content, wanted: &Content, stack: usize) -> Plan {
    let slots = (0..MAPS).map(|map| (stack, map));
    slots
        .filter_map(|slot| match (live.get(&slot), wanted.get(&slot)) {
            (None, Some(value)) => Some((slot, Action::Create(*value))),
            (Some(_), None) => Some((slot, Action::Delete)),
            (Some(now), Some(value)) if now != value => Some((slot, Action::Update(*value))),
            _ => None,
        })
        .collect()
}

impl Model {
    /// A repository whose first commit is applied.
    pub fn applied(content: Content) -> Self {
        let recorded = (0..STACKS).map(|stack| {
            let recorded = Recorded {
                content: of_stack(&content, stack),
                ..Recorded::default()
            };
            (stack, recorded)
        });
        Self {
            recorded: recorded.collect(),
            live: content.clone(),
            main: vec![Commit {
                content,
                merged: BTreeSet::new(),
            }],
            pulls: BTreeMap::new(),
        }
    }

    pub fn tip(&self) -> &Commit {
        self.main.last().unwrap()
    }

    /// Somebody opens a pull request from the tip of `main`.
    pub fn opened(&mut self, number: u64, head: String, change: Change) {
        let pull = Pull {
            base: self.tip().content.clone(),
            change,
            head,
            is_merged: false,
            shown: BTreeMap::new(),
        };
        self.pulls.insert(number, pull);
    }

    /// The preview that the newest head asks for.
    pub fn asked(&self, number: u64, has_test_merge: bool) -> Preview {
        let pull = &self.pulls[&number];
        let base = if has_test_merge {
            &self.tip().content
        } else {
            &pull.base
        };
        Preview {
            number,
            head: pull.head.clone(),
            stacks: pull.change.keys().map(|(stack, _)| *stack).collect(),
            content: changed(base, &pull.change),
        }
    }

    /// A preview has run. After the merge it is no review.
    pub fn previewed(&mut self, preview: &Preview) {
        let stacks = preview.stacks.iter();
        let shown = stacks.map(|stack| (*stack, plan(&self.live, &preview.content, *stack)));
        let shown = shown.collect();
        let pull = self.pulls.get_mut(&preview.number).unwrap();
        if !pull.is_merged {
            pull.shown.insert(preview.head.clone(), shown);
        }
    }

    /// `main` has one more commit, which brings a pull request or nothing that anybody reviewed.
    pub fn pushed(&mut self, change: &Change, pull: Option<u64>) -> usize {
        let tip = self.tip();
        let content = changed(&tip.content, change);
        let merged = tip.merged.iter().copied().chain(pull).collect();
        self.main.push(Commit { content, merged });
        if let Some(pull) = pull {
            self.pulls.get_mut(&pull).unwrap().is_merged = true;
        }
        self.main.len() - 1
    }

    /// The stacks of a commit that are not applied, without those that have a newer one.
    pub fn pending(&self, at: usize) -> BTreeSet<usize> {
        let content = &self.main[at].content;
        let pending = self.recorded.iter().filter(|(stack, recorded)| {
            recorded.commit <= at && recorded.content != of_stack(content, **stack)
        });
        pending.map(|(stack, _)| *stack).collect()
    }

    /// What an apply of a commit does, of which these plans were approved.
    pub fn expected(&self, at: usize, agreed: &BTreeMap<usize, Plan>) -> Expected {
        let mut expected = Expected::default();
        for stack in self.pending(at) {
            let plan = plan(&self.live, &self.main[at].content, stack);
            let shown = self
                .reviews(at)
                .filter(|(number, _)| !self.recorded[&stack].used.contains(number));
            let shown: BTreeSet<_> = shown
                .filter_map(|(_, shown)| shown.get(&stack))
                .flatten()
                .collect();
            if agreed.get(&stack) == Some(&plan) || plan.iter().all(|unit| shown.contains(&unit)) {
                expected.applied.insert(stack);
            } else {
                expected.stopped.insert(stack, plan);
            }
        }
        expected
    }

    /// The reviews that count for a commit: what the last head of each pull request in it showed.
    fn reviews(&self, at: usize) -> impl Iterator<Item = (u64, &BTreeMap<usize, Plan>)> {
        let merged = self.main[at].merged.iter();
        merged.filter_map(|number| Some((*number, self.pulls[number].shown.get(&self.pulls[number].head)?)))
    }

    /// An apply has run to its end.
    pub fn applied_at(&mut self, at: usize, expected: &Expected) {
        let reviews: BTreeSet<_> = self.reviews(at).map(|(number, _)| number).collect();
        for stack in &expected.applied {
            let content = of_stack(&self.main[at].content, *stack);
            self.live.retain(|(of, _), _| of != stack);
            self.live.extend(content.clone());
            let recorded = self.recorded.get_mut(stack).unwrap();
            (recorded.content, recorded.commit) = (content, at);
            recorded.used.extend(&reviews);
        }
        // A review that no stack waits for is over.
        for number in reviews {
            let pull = self.pulls.get_mut(&number).unwrap();
            let waits = |shown: &BTreeMap<usize, Plan>| {
                shown.keys().any(|stack| expected.stopped.contains_key(stack))
            };
            if !pull.shown.get(&pull.head).is_some_and(waits) {
                pull.shown.clear();
            }
        }
    }

    /// An apply was killed, and this is what stands now: of each map the old or the new value, and of what had to be
    /// stopped the old one.
    pub fn killed_at(&mut self, at: usize, expected: &Expected, live: Content) {
        for slot in (0..STACKS).flat_map(|stack| (0..MAPS).map(move |map| (stack, map))) {
            let (before, now) = (self.live.get(&slot), live.get(&slot));
            let wanted = self.main[at].content.get(&slot);
            let may_change = expected.applied.contains(&slot.0);
            assert!(
                now == before || may_change && now == wanted,
                "{slot:?}: {before:?}, {now:?}"
            );
        }
        self.live = live;
    }
}
