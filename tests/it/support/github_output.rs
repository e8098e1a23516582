//! What a run told GitHub, as a text that is the same in every run: commits by their names, no digests and no times.

use konverge_base::model::comment_marker::CommentMarker;
use serde_json::Value;

use super::{
    ci_stage::{Ran, Stage},
    github::Recorded,
};

/// The requests since the `from`th, what was written by them, and the step's summary. `names` are commits and what
/// they are called.
pub fn told(stage: &Stage, ran: &Ran, from: usize, names: &[(String, &str)]) -> String {
    let mut text = format!("exit code {}\n", ran.outcome.code.unwrap_or(-1));
    for line in ran.outcome.stderr.lines() {
        if ["note:", "warning:", "error:", "  hint:"]
            .iter()
            .any(|word| line.starts_with(word))
        {
            text.push_str(&format!("{line}\n"));
        }
    }
    text.push_str("\n=== requests\n");
    for request in &stage.github.requests()[from..] {
        text.push_str(&format!("{}\n", said(request)));
    }
    let mut summary = ran.summary.clone();
    for body in stage.github.requests()[from..]
        .iter()
        .filter_map(|request| request.body["body"].as_str())
    {
        let (marker, rest) = opened(body);
        text.push_str(&format!("\n=== written\n{marker}\n{rest}"));
        summary = summary.replace(rest, "(what was written above)\n");
    }
    text.push_str(&format!("\n=== summary\n{summary}"));
    let temp = stage.scratch.path().display().to_string();
    let text = text.replace(&temp, "<temp>");
    let text = text.replace(
        &format!("Konverge {}", env!("CARGO_PKG_VERSION")),
        "Konverge <version>",
    );
    without_times(&without_hashes(&text, names))
}

/// A line with the numbers of runs taken out.
pub fn without_runs(line: &str) -> String {
    let mut parts = line.split("/runs/");
    let first = parts.next().expect("there is always one").to_owned();
    parts.fold(first, |text, part| {
        text + "/runs/" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// A request in a line, with what matters of its body.
fn said(request: &Recorded) -> String {
    let body = |path: &str| {
        let found = request.body.pointer(path).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let path = request.path.trim_start_matches("/repos/acme/konfig");
    let what = match path.split('/').nth(1) {
        Some("statuses") => format!(
            " {} {}: {}",
            body("/context"),
            body("/state"),
            body("/description")
        ),
        Some("issues") if request.method != "GET" => format!(" {}{}", body("/title"), body("/state")),
        Some("check-runs") => format!(
            " {} {}: {}",
            body("/name"),
            body("/conclusion"),
            body("/output/title")
        ),
        _ => String::new(),
    };
    format!(
        "{} {path}{} -> {}",
        request.method,
        what.trim_end(),
        request.status
    )
}

/// A body's marker, readable, and the rest.
fn opened(body: &str) -> (String, &str) {
    let marker = CommentMarker::parse(body).expect("whatever we write begins with a marker");
    let rest = body.split_once('\n').map_or("", |(_, rest)| rest);
    (serde_json::to_string(&marker).expect("plain data"), rest)
}

/// Every run of seven or more hexadecimal digits is the commit that it begins, or a hash with a number: the same hash,
/// or its beginning, has the same number wherever it stands.
fn without_hashes(text: &str, names: &[(String, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let mut hashes: Vec<String> = Vec::new();
    let mut end = |word: &mut String, out: &mut String| {
        let digits = word.len() >= 7 && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        let hash = digits && word.chars().any(|c| c.is_ascii_digit());
        let name = names.iter().find(|(sha, _)| sha.starts_with(word.as_str()));
        match name {
            Some((_, name)) if digits => out.push_str(&format!("<{name}>")),
            _ if hash => {
                let same =
                    |known: &String| known.starts_with(word.as_str()) || word.starts_with(known.as_str());
                let at = hashes.iter().position(same).unwrap_or_else(|| {
                    hashes.push(word.clone());
                    hashes.len() - 1
                });
                out.push_str(&format!("<hash {}>", at + 1));
            }
            _ => out.push_str(word),
        }
        word.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(c);
        } else {
            end(&mut word, &mut out);
            out.push(c);
        }
    }
    end(&mut word, &mut out);
    out
}

/// The picture of what took how long, without its numbers: when a bar begins and ends, which stack took the longest,
/// and how often a server was asked until something was ready.
fn without_measures(text: &str) -> String {
    let bar =
        regex::Regex::new(r"(?m)^(  .*) \([0-9.]+ s\) :((?:\w+, )?)[0-9]+, [0-9]+$").expect("a pattern");
    let host = regex::Regex::new(r"(?m)^(\| `127\.0\.0\.1` \|) [0-9]+ \|").expect("a pattern");
    let text = bar.replace_all(text, "$1 (N s) :${2}N, N");
    let text = host.replace_all(&text, "$1 N |");
    let mut lines: Vec<&str> = text.split('\n').collect();
    let slowest = lines.iter().position(|line| *line == "  section Slowest stacks");
    if let Some(first) = slowest.map(|at| at + 1) {
        let bars = lines[first..]
            .iter()
            .take_while(|line| line.starts_with("  "))
            .count();
        lines[first..first + bars].sort_unstable();
    }
    lines.join("\n")
}

/// `0.4 s`, `12 s` and `1 min 12 s` are `N s`; moments and ages are left out.
fn without_times(text: &str) -> String {
    let text = without_measures(text).replace("| 1 min |", "| less than a minute |");
    // On a machine with much to do.
    let long = regex::Regex::new(r"\b\d+ min (\d+ s)\b").expect("a pattern");
    let text = long.replace_all(&text, "$1");
    let mut parts: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for at in 1..parts.len() {
        let seconds = parts[at] == "s" || parts[at].starts_with("s\n") || parts[at].starts_with("s<");
        let number =
            !parts[at - 1].is_empty() && parts[at - 1].chars().all(|c| c.is_ascii_digit() || c == '.');
        if seconds && number {
            parts[at - 1] = "N".to_owned();
        }
        let digits = |c: char| if c.is_ascii_digit() { 'N' } else { c };
        let zulu = parts[at].get(..20).is_some_and(|text| text.ends_with('Z'));
        if zulu && parts[at].as_bytes()[10] == b'T' {
            // What follows it on the next lines may have no blank before it.
            let (moment, rest) = parts[at].split_at(20);
            parts[at] = moment.chars().map(digits).collect::<String>() + rest;
        }
        if parts[at].starts_with("UTC") && at > 1 {
            for moment in &mut parts[at - 2..at] {
                *moment = moment.chars().map(digits).collect();
            }
        }
    }
    parts.join(" ")
}
