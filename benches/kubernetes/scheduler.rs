//! The graph and the ready queue, without anything to wait for.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use konverge_base::model::spec::Resource;
use konverge_engine::{Schedule, spec::graph::ResourceGraph};
use serde_json::{Value, json};

use crate::{ROUNDS, page::Page, support::stack::resource};

const NODES: usize = 2000;

/// Shapes that Kusion's engine needs from half a second to minutes for.
pub fn measure(page: &mut Page) {
    shape(page, "all after one", NODES, |n| {
        if n == 0 { vec![] } else { vec![0] }
    });
    shape(page, "one after the other", NODES, |n| {
        n.checked_sub(1).into_iter().collect()
    });
    // As a generator that orders by kind makes them: each after all of the kinds before.
    shape(page, "three kinds, each after the ones before", 600, |n| {
        (0..n / 200 * 200).collect()
    });
}

fn shape(page: &mut Page, name: &str, nodes: usize, before: impl Fn(usize) -> Vec<usize>) {
    let resources: Vec<Resource> = (0..nodes).map(|n| resource(&object(n, &before(n)))).collect();
    let edges = resources.iter().map(|resource| resource.depends_on.len()).sum();
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        assert_eq!(walk(&resources), nodes);
        best = best.min(started.elapsed());
    }
    page.scheduler(name, nodes, edges, best);
}

/// From resources to the last one done, as an apply goes.
fn walk(resources: &[Resource]) -> usize {
    let graph = ResourceGraph::from_spec(resources).unwrap();
    let index: HashMap<_, _> = resources.iter().enumerate().map(|(n, r)| (&r.id, n)).collect();
    let waits: Vec<Vec<usize>> = resources
        .iter()
        .map(|r| {
            graph
                .dependencies(&r.id)
                .iter()
                .map(|(id, _)| index[id])
                .collect()
        })
        .collect();
    let mut schedule = Schedule::new(&waits);
    let mut done = 0;
    while let Some(unit) = schedule.start() {
        schedule.done(unit);
        done += 1;
    }
    done
}

fn object(n: usize, before: &[usize]) -> Value {
    let on: Vec<_> = before.iter().map(|n| format!("v1:ConfigMap:ns:c{n}")).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}"), "namespace": "ns"},
        "data": {"n": n.to_string()}, "$dependsOn": on})
}
