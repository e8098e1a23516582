//! Affected stacks at the known scale: 1,500 projects of 3 stacks, about 600,000 lines of KCL.
//!
//! `cargo bench --bench affected` makes the monorepos, measures whole processes against the floor, and writes its
//! section of `benches/figures.md`. Ratios in one run decide; absolute times are this machine's.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod floor;
mod measure;
mod monorepo;

use std::{fmt::Write as _, path::Path};

use measure::{Figure, processes, with_and_without_reads};
use monorepo::{Change, Monorepo};

/// So many of each, by turns.
const RUNS: usize = 15;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, how, repository, base, head] = args.as_slice()
        && how.ends_with("floor")
    {
        floor::run(Path::new(repository), base, head, how == "--trusting-floor");
        return;
    }
    // `cargo test --benches` only wants to know that it runs.
    let quick = !args.iter().any(|arg| arg == "--bench");
    let scales = if quick { [5, 10, 20] } else { [150, 1_500, 3_000] };
    let runs = if quick { 1 } else { RUNS };
    let made: Vec<_> = scales.into_iter().map(Monorepo::make).collect();
    let mut rows = String::new();
    let mut summary = Vec::new();
    for repo in &made {
        for change in Change::ALL {
            let figure = processes(repo, change, runs);
            println!("{} projects, {}: {figure:?}", repo.projects, change.name());
            let _ = writeln!(rows, "{}", row(repo, change, &figure));
            summary.push((repo.projects, change, figure));
        }
    }
    let projects = if quick { 10 } else { 1_667 };
    let repos = [Monorepo::make(projects), Monorepo::with_reads(projects, 2)];
    let [without, with] = with_and_without_reads([&repos[0], &repos[1]], runs);
    let reads = format!(
        "{} stacks of which each reads outputs of two others, warm: {with} ms, {:.2} times the {without} ms without (goal: at most 1.1)",
        thousands(projects * 3),
        with.time / without.time,
    );
    println!("{reads}");
    if !quick && std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        write_section(&made, &rows, &summary, &reads);
    }
}

fn row(repo: &Monorepo, change: Change, figure: &Figure) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} | **{:.2}** | {:.2} | {} | {:.0} | {:.1} |",
        thousands(repo.projects),
        change.name(),
        thousands(figure.named),
        figure.floor,
        figure.trusting,
        figure.cold,
        figure.cold.time / figure.floor.time,
        figure.cold.time / figure.trusting.time,
        figure.warm,
        figure.peak,
        figure.kept,
    )
}

fn write_section(made: &[Monorepo], rows: &str, summary: &[(usize, Change, Figure)], reads: &str) {
    let of = |projects: usize, change: Change| {
        let found = summary.iter().find(|(p, c, _)| *p == projects && *c == change);
        &found.unwrap().2
    };
    let (one, small, two) = (
        of(1_500, Change::Application),
        of(150, Change::Application),
        of(3_000, Change::Application),
    );
    let shape = &made[1];
    let text = format!(
        "## Affected stacks\n\n\
         Whole processes, the least of {RUNS} runs alternately, {cores} cores. Milliseconds, in brackets of processor time. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench affected` writes this.\n\
         \n\
         - *floor*: a plain libgit2 program on one core. It walks both trees and inflates every `.k`, `kcl.mod`, settings, project and stack blob once.\n\
         - *trusting*: the same without libgit2's second hashing of every object.\n\
         - *cold*: `konverge affected --output json` without an index, which it writes for the next run; *warm*: with the index.\n\
         - *peak*: resident memory of a cold run; *kept*: the index. Both in MiB.\n\
         \n\
         The monorepo of 1,500 projects has {stacks} stacks, {files} files and {lines} lines of KCL, in one pack.\n\n\
         | projects | change | stacks named | floor | trusting | cold | cold : floor | cold : trusting | warm | peak | kept |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n{rows}\n\
         - Cold, at 1,500 projects: {ratio:.2} times the floor (goal: at most 1.5), {cold:.0} ms (goal: under 1,000).\n\
         - Warm: {warm:.0} ms (goal: under 100). Peak: {peak:.0} MiB (goal: under 200).\n\
         - Twice the stacks: {twice:.2} times the cold time (goal: at most 2.2).\n\
         - One application file, warm: {small:.0} ms with 150 projects, {warm:.0} ms with 1,500. The floor takes \
         {small_floor:.0} ms and {floor:.0} ms.\n\
         - {reads}.\n",
        cores = std::thread::available_parallelism().map_or(1, usize::from),
        stacks = thousands(shape.projects * 3),
        files = thousands(shape.files),
        lines = thousands(shape.lines),
        ratio = one.cold.time / one.floor.time,
        cold = one.cold.time,
        warm = one.warm.time,
        peak = one.peak,
        twice = two.cold.time / one.cold.time,
        small = small.warm.time,
        small_floor = small.floor.time,
        floor = one.floor.time,
    );
    konverge_testkit::performance::write("affected", text.trim_end());
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
