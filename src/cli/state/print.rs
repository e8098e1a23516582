//! The output of `konverge state`.

use super::super::CliContext;
use konverge_base::{
    error::UserError,
    model::{ResourceId, apply_record::ApplyRecord, apply_result::StackResult, note::Note},
};
use konverge_report::{
    self as report,
    escape::{self, log},
};
use konverge_run::{
    StateBackend,
    state::{self as ops, OutputRow, StackOutputs},
};

pub(super) fn json<T: serde::Serialize>(value: &T, context: &CliContext) {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    context.print(&(escape::json(&text) + "\n"));
}

pub(super) async fn list(backend: &StateBackend, json: bool, context: &CliContext) -> Result<(), UserError> {
    let stacks = ops::list(backend).await?;
    if json {
        self::json(&serde_json::json!({"version": 1, "stacks": stacks}), context);
        return Ok(());
    }
    let width = stacks
        .iter()
        .map(|listed| listed.stack.as_str().len())
        .max()
        .unwrap_or(0);
    for listed in &stacks {
        let entry = &listed.entry;
        let commit = entry.commit.as_ref().map_or("-", |commit| commit.short());
        let open = if entry.open {
            "  being applied, or interrupted"
        } else {
            ""
        };
        context.print(&format!(
            "{:width$}  serial {:>4}  {:>4} resources  {commit:7}  {}{open}\n",
            listed.stack.as_str(),
            entry.serial,
            entry.resources,
            log(&entry.folder.to_string()),
        ));
        if let Some(why) = &listed.damaged {
            context.print(&format!("{:width$}  damaged: {}\n", "", log(why)));
        }
    }
    if stacks.is_empty() {
        context.note("nothing is recorded yet");
    }
    Ok(())
}

pub(super) async fn show(
    backend: &StateBackend,
    stack: &str,
    serial: Option<u64>,
    json: bool,
    context: &CliContext,
) -> Result<(), UserError> {
    let stack = ops::resolve_stack(backend, stack).await?;
    let found = ops::show(backend, &stack, serial).await?;
    if json {
        let document = serde_json::json!({
            "version": 1, "serial": found.serial, "epoch": found.epoch, "reason": found.reason,
            "writer": found.writer, "written": found.written, "note": found.note,
            "receipt": found.receipt, "pending": found.pending, "state": found.state,
        });
        self::json(&document, context);
        return Ok(());
    }
    context.print(&format!(
        "# serial {}, {} by {} at {}\n",
        found.serial,
        found.reason,
        log(&found.writer.to_string()),
        report::time(found.written)
    ));
    if let Some(receipt) = &found.receipt {
        context.print(&format!("# {}\n", record_line(receipt)));
    }
    if !found.pending.is_empty() {
        let ids: Vec<_> = found.pending.iter().map(ResourceId::as_str).collect();
        context.print(&format!(
            "# a run ended in the middle; outcome unknown: {}\n",
            ids.join(", ")
        ));
    }
    context.print(&escape::yaml(&ops::readable(&found.state)));
    Ok(())
}

pub(super) async fn history(
    backend: &StateBackend,
    stack: &str,
    json: bool,
    context: &CliContext,
) -> Result<(), UserError> {
    let stack = ops::resolve_stack(backend, stack).await?;
    let lines = backend.states.history(&stack).await?;
    if lines.is_empty() {
        return Err(ops::unknown(&stack));
    }
    if json {
        self::json(
            &serde_json::json!({"version": 1, "stack": stack, "serials": lines}),
            context,
        );
        return Ok(());
    }
    for line in lines {
        let text = match line.document {
            Ok(entry) => format!(
                "{:<8} {:>4} resources  {:7}  {}  {}{}{}",
                entry.reason.to_string(),
                entry.resources,
                entry
                    .commit
                    .as_deref()
                    .and_then(|commit| commit.get(..7))
                    .unwrap_or("-"),
                report::time(entry.time),
                log(&entry.writer.to_string()),
                entry
                    .note
                    .map(|note| format!("  {}", log(&note)))
                    .unwrap_or_default(),
                entry
                    .receipt
                    .map(|receipt| format!("\n        {}", record_line(&receipt)))
                    .unwrap_or_default(),
            ),
            Err(why) => format!("cannot be read: {}", log(&why)),
        };
        context.print(&format!("{:>6}  {text}\n", line.serial));
    }
    Ok(())
}

/// Prints the outputs of a stack, one per line.
pub(super) fn outputs(found: &StackOutputs, json: bool, context: &CliContext) {
    if json {
        return self::json(found, context);
    }
    if found.outputs.is_empty() {
        context.note(&format!("{} publishes nothing", found.stack));
        return;
    }
    let width = |text: fn(&OutputRow) -> usize| found.outputs.iter().map(text).max().unwrap_or(0);
    let names = width(|output| output.name.as_str().len());
    let values = width(|output| output.value.to_string().chars().count()).min(60);
    for output in &found.outputs {
        let readers: Vec<_> = output
            .readers
            .iter()
            .map(|reader| {
                let earlier = if reader.current { "" } else { " (an earlier value)" };
                format!("{}{earlier}", reader.stack)
            })
            .collect();
        let readers = if readers.is_empty() {
            "nobody reads it".to_owned()
        } else {
            format!("read by {}", readers.join(", "))
        };
        context.print(&format!(
            "{:names$}  {:values$}  since serial {}, {readers}\n",
            output.name.as_str(),
            log(&output.value.to_string()),
            output.serial,
        ));
    }
}

/// Formats an apply record in one line: `applied, plan 0123456789ab: #7, approved by ada`.
fn record_line(receipt: &ApplyRecord) -> String {
    let result = match receipt.result {
        StackResult::Applied => "applied",
        StackResult::Unchanged => "nothing to do",
        StackResult::Waiting => "waiting",
        StackResult::Failed => "failed",
        StackResult::Stopped => "stopped",
        StackResult::HeldBack => "skipped",
    };
    let grounds = receipt.grounds.to_string();
    let grounds = if grounds.is_empty() {
        grounds
    } else {
        format!(": {}", log(&grounds))
    };
    format!("{result}, plan {}{grounds}", receipt.digest.short())
}

/// Prints which documents were encrypted again. The exit code says whether any are left.
pub(super) fn rekeyed(rekeyed: &ops::Rekeyed, json: bool, context: &CliContext) -> u8 {
    if json {
        let stacks = rekeyed.stacks.iter();
        let stacks: Vec<_> = stacks
            .map(|(stack, documents)| serde_json::json!({"stack": stack, "documents": documents}))
            .collect();
        let failed = rekeyed.failed.iter();
        let failed: Vec<_> = failed
            .map(|(stack, error)| serde_json::json!({"stack": stack, "error": error.message, "hints": error.hints}))
            .collect();
        let document = serde_json::json!({
            "version": 1, "newDataKey": rekeyed.data_key, "stacks": stacks, "marked": rekeyed.marked,
            "failed": failed,
        });
        self::json(&document, context);
        return u8::from(!rekeyed.failed.is_empty());
    }
    if rekeyed.data_key {
        context.note("a new data key was made");
    }
    for (stack, documents) in &rekeyed.stacks {
        let documents = report::plural(*documents, "document");
        context.print(&format!("{stack}: {documents} re-encrypted\n"));
    }
    for (stack, error) in &rekeyed.failed {
        let hints = error.hints.iter().map(|hint| format!("\n  hint: {hint}"));
        let failed = format!("{}{}", error.message, hints.collect::<String>());
        context.say(&Note::warning(failed).of(stack));
    }
    if rekeyed.marked > 0 {
        let documents = report::plural(rekeyed.marked, "other document");
        context.print(&format!("{documents} marked again\n"));
    }
    if rekeyed.stacks.is_empty() && rekeyed.failed.is_empty() {
        context.note("every state is encrypted to `state.encrypt_to` already");
    }
    u8::from(!rekeyed.failed.is_empty())
}

pub(super) async fn doctor(
    backend: &StateBackend,
    repair: bool,
    json: bool,
    context: &CliContext,
) -> Result<u8, UserError> {
    let index = if repair {
        ops::IndexCheck::Rebuild
    } else {
        ops::IndexCheck::Compare
    };
    let findings = ops::doctor(backend, index).await?;
    let well = findings.iter().all(|finding| finding.well);
    if json {
        self::json(&serde_json::json!({"version": 1, "findings": findings}), context);
    } else {
        for finding in &findings {
            let word = if finding.well { "ok  " } else { "FAIL" };
            context.print(&format!(
                "{word}  {}: {}\n",
                log(&finding.what),
                log(&finding.says)
            ));
        }
    }
    Ok(u8::from(!well))
}
