//! Rendering a change of 2,000 stacks: the comment, the job summary, the page. Writes its section of
//! `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench comment`
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::Criterion;
use konverge_report::{COMMENT_BUDGET, SUMMARY_BUDGET, html, markdown};
use konverge_testkit::{performance, process::peak_kib};

#[path = "../tests/it/support/sample_plans.rs"]
#[allow(dead_code)]
mod sample_plans;

const STACKS: usize = 2_000;

fn main() {
    let before = peak();
    let large = sample_plans::large(STACKS);
    let loaded = peak();
    let started = Instant::now();
    let comment = markdown::comment(&large.input(COMMENT_BUDGET));
    let once = started.elapsed();
    let rendered = peak();
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        let rows = [
            (
                "the comment (60,000 bytes)",
                best(|| markdown::comment(&large.input(COMMENT_BUDGET)).body.len()),
            ),
            (
                "the job summary (900 KiB)",
                best(|| markdown::summary(&large.input(0), SUMMARY_BUDGET).body.len()),
            ),
            ("the HTML page", best(|| html::report(&large.input(0)).len())),
        ];
        write(
            &rows,
            loaded.saturating_sub(before),
            rendered.saturating_sub(loaded),
        );
        return;
    }
    println!(
        "comment: {} bytes, first {once:?}, {} MiB more than the plan",
        comment.body.len(),
        (rendered - loaded) >> 20
    );
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    criterion.bench_function("comment of 2000 stacks", |b| {
        b.iter(|| black_box(markdown::comment(&large.input(COMMENT_BUDGET))))
    });
    criterion.bench_function("page of 2000 stacks", |b| {
        b.iter(|| black_box(html::report(&large.input(0))))
    });
    criterion.final_summary();
}

/// The best of nine: on a shared machine the least disturbed.
fn best(mut work: impl FnMut() -> usize) -> (Duration, usize) {
    let mut size = 0;
    let time = (0..9).map(|_| {
        let started = Instant::now();
        size = black_box(work());
        started.elapsed()
    });
    let time = time.min().unwrap();
    (time, size)
}

/// The process's largest resident size so far, in bytes.
fn peak() -> usize {
    (peak_kib(std::process::id()).unwrap() << 10) as usize
}

fn write(rows: &[(&str, (Duration, usize))], plan: usize, more: usize) {
    let mut section = format!(
        "## Rendering a change of {STACKS} stacks\n\n| what | time, best of 9 | bytes |\n| --- | --- | --- |\n"
    );
    for (what, (time, bytes)) in rows {
        section.push_str(&format!(
            "| {what} | {:.0} ms | {bytes} |\n",
            time.as_secs_f64() * 1e3
        ));
    }
    section.push_str(&format!(
        "\nThe plan itself takes {} MiB; rendering the comment takes {} MiB more. Bounds: 200 ms and 100 MiB. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench comment` writes this.",
        plan >> 20,
        more >> 20
    ));
    performance::write("comment", &section);
}
