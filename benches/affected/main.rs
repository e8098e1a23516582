//! Affected stacks at the known scale: 1,500 projects of 3 stacks, about 600,000 lines of KCL.
//!
//! `cargo bench --bench affected` makes the monorepos, measures whole processes against the floor, and writes its
//! section of `docs/performance.md`. Ratios in one run decide; absolute times are this machine's.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]
#![allow(missing_docs)]

mod floor;
mod measure;
mod monorepo;

use std::{fmt::Write as _, path::Path};

use measure::{Figure, processes};
use monorepo::{Change, Monorepo};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--floor") {
        floor::run(Path::new(&args[at + 1]), &args[at + 2], &args[at + 3]);
        return;
    }
    // `cargo test --benches` only wants to know that it runs.
    let quick = !args.iter().any(|arg| arg == "--bench");
    let scales = if quick { [5, 10, 20] } else { [150, 1_500, 3_000] };
    let runs = if quick { 1 } else { 7 };
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
    if !quick {
        write_section(&made, &rows, &summary);
    }
}

fn row(repo: &Monorepo, change: Change, figure: &Figure) -> String {
    format!(
        "| {} | {} | {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} |",
        thousands(repo.projects),
        change.name(),
        thousands(figure.named),
        figure.floor,
        figure.cold,
        figure.cold / figure.floor,
        figure.warm,
        figure.peak,
    )
}

fn write_section(made: &[Monorepo], rows: &str, summary: &[(usize, Change, Figure)]) {
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
         Made by `cargo bench --bench affected`, which writes this section. Whole processes, median of 7, milliseconds, \
         {cores} cores. *Floor* is a plain libgit2 program that walks both trees and inflates every `.k`, `kcl.mod`, settings, \
         project and stack blob once; *cold* is `konverge affected --output json` without an index, *warm* with the index of an \
         earlier run; *peak* is the resident memory of the cold run in MiB, sampled every millisecond.\n\n\
         The monorepo of 1,500 projects has {stacks} stacks, {files} files and {lines} lines of KCL, in one pack.\n\n\
         | projects | change | stacks named | floor | cold | cold : floor | warm | peak |\n\
         |---|---|---|---|---|---|---|---|\n{rows}\n\
         - Cold, at 1,500 projects: {ratio:.2} times the floor (goal: at most 1.5), {cold:.0} ms (goal: under 1,000).\n\
         - Warm: {warm:.0} ms (goal: under 100). Peak: {peak:.0} MiB (goal: under 200).\n\
         - Twice the stacks: {twice:.2} times the cold time (goal: at most 2.2).\n\
         - One application file, warm, 150 projects against 1,500: {small:.0} ms against {warm:.0} ms; the floor, which is the \
         walk and the reading, takes {small_floor:.0} ms against {floor:.0} ms.\n",
        cores = std::thread::available_parallelism().map_or(1, usize::from),
        stacks = thousands(shape.projects * 3),
        files = thousands(shape.files),
        lines = thousands(shape.lines),
        ratio = one.cold / one.floor,
        cold = one.cold,
        warm = one.warm,
        peak = one.peak,
        twice = two.cold / one.cold,
        small = small.warm,
        small_floor = small.floor,
        floor = one.floor,
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let (begin, end) = ("<!-- affected: begin -->\n", "<!-- affected: end -->\n");
    let old = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Performance\n".to_owned());
    let (before, after) = match (old.find(begin), old.find(end)) {
        (Some(from), Some(to)) => (old[..from].to_owned(), old[to + end.len()..].to_owned()),
        _ => (format!("{}\n\n", old.trim_end()), String::new()),
    };
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("{before}{begin}{text}{end}{after}")).unwrap();
    println!("wrote {}", path.display());
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
