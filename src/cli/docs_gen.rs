//! Generates the reference pages in `docs/reference/` and the man pages from the program itself. A test
//! compares the pages with this output.

use std::path::{Path, PathBuf};

use clap::{Command, Id};
use serde_json::Value;

use super::CliContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::plan_document::PlanDocument,
};
use konverge_config::json_schema;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The page
    #[arg(value_enum)]
    page: DocPage,
    /// The folder for man pages
    #[arg(long, value_name = "DIR", required_if_eq("page", "man"))]
    to: Option<PathBuf>,
}

/// The pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DocPage {
    /// docs/reference/commands.md
    Commands,
    /// docs/reference/konverge-yaml.md
    Config,
    /// docs/reference/errors.md
    Errors,
    /// docs/reference/plan.schema.json
    Plan,
    /// A man page for every command
    Man,
}

/// Prints a page.
///
/// # Errors
/// A man page cannot be written.
pub(super) fn run(args: &Args, command: Command, context: &CliContext) -> Result<u8, UserError> {
    match (args.page, &args.to) {
        (DocPage::Commands, _) => context.print(&commands(command)),
        (DocPage::Config, _) => context.print(&config()),
        (DocPage::Errors, _) => context.print(&errors()),
        (DocPage::Plan, _) => context.print(&plan_schema()),
        (DocPage::Man, to) => man(
            command,
            &context.current_dir.join(to.as_deref().unwrap_or(Path::new("."))),
        )?,
    }
    Ok(0)
}

/// `konverge.1`, `konverge-preview.1` and so on, without internal commands.
fn man(command: Command, folder: &Path) -> Result<(), UserError> {
    let failed = |error: std::io::Error| {
        UserError::new(ErrorKind::Usage, format!("--to {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)
}

/// The meaning of the exit codes; the codes themselves are in [`ErrorKind::exit_code`].
const EXIT_CODES: [(u8, &str); 7] = [
    (
        0,
        "ok; also of an apply whose stacks wait, such as for the promotion of a rollout",
    ),
    (1, "error"),
    (2, "changes or drift, only with `--exit-code`"),
    (3, "stopped by review or policy"),
    (4, "the lease is held"),
    (64, "wrong usage"),
    (130, "interrupted"),
];

fn errors() -> String {
    let mut text = "# Exit codes and error kinds\n\nGenerated from the program by `konverge __reference errors`.\n\n## Exit codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("| {code} | {meaning} |\n"));
    }
    text.push_str("\n## Error kinds\n\nWith `--output json` an error is `{\"error\": {\"kind\", \"message\", \"file\", \"line\", \"column\", \"hints\"}}` on stdout; `file`, `line` and `column` are there where there is a place. The output `failure-reason` of the action is the kind.\n\n| kind | what went wrong | exit code |\n|---|---|---|\n");
    let schema = schemars::schema_for!(ErrorKind).to_value();
    for kind in schema["oneOf"].as_array().into_iter().flatten() {
        let word = &kind["const"];
        let code = serde_json::from_value::<ErrorKind>(word.clone()).map_or(1, ErrorKind::exit_code);
        let meaning = value_text(kind).replace('\n', " ");
        // The code has its own column.
        let meaning = meaning.split(" (exit code").next().unwrap_or_default();
        text.push_str(&format!(
            "| `{}` | {}. | {code} |\n",
            word.as_str().unwrap_or_default(),
            meaning.trim_end_matches('.')
        ));
    }
    text
}

/// The JSON Schema of the plan document.
fn plan_schema() -> String {
    let schema = serde_json::to_string_pretty(&PlanDocument::schema());
    schema.expect("a schema has string keys only") + "\n"
}

fn commands(command: Command) -> String {
    let mut page = CommandsPage {
        text: "# Commands\n\nGenerated from the program's own help by `konverge __reference commands`. Global options stand at \
               `konverge` alone, those of all `konverge state` commands at `konverge state`. What several commands have is \
               described at the first one. `konverge COMMAND --help` and the man pages have examples.\n"
            .to_owned(),
        described: Vec::new(),
    };
    let mut root = command.term_width(100);
    root.build();
    page.describe(&root, "", &[]);
    page.text
}

/// The page of all commands.
struct CommandsPage {
    text: String,
    described: Vec<GroupedOption>,
}

/// An option of a group (stacks, change, infrastructure), and the first command that has it with this help.
struct GroupedOption {
    id: Id,
    help: Option<String>,
    command: String,
}

impl CommandsPage {
    /// Describes a command and those below it. Options of `shown`, which commands above share with it, are left out.
    fn describe(&mut self, command: &Command, above: &str, shown: &[Id]) {
        let name = format!("{above} {}", command.get_name()).trim().to_owned();
        let level = "#".repeat(2 + name.matches(' ').count().min(3));
        let elsewhere = self.described_elsewhere(command, &name);
        let mut page = command.clone().mut_args(|arg| {
            let hidden = arg.is_hide_set()
                || shown.contains(arg.get_id())
                || elsewhere.iter().any(|(id, _)| id == arg.get_id());
            arg.hide(hidden)
        });
        let help = without_examples(&page.render_long_help().to_string());
        self.text
            .push_str(&format!("\n{level} {name}\n\n```text\n{help}\n```\n"));
        let options: Vec<_> = elsewhere.into_iter().map(|(_, line)| line).collect();
        if !options.is_empty() {
            self.text.push_str(&format!("\nAlso {}.\n", options.join(", ")));
        }
        let below: Vec<Id> = command
            .get_arguments()
            .filter(|arg| arg.is_global_set() || arg.get_id() == "help")
            .map(|arg| arg.get_id().clone())
            .collect();
        for child in command.get_subcommands() {
            if !child.is_hide_set() && child.get_name() != "help" {
                self.describe(child, &name, &below);
            }
        }
    }

    /// The options of a command that an earlier one has with the same help, each with a link to that command.
    fn described_elsewhere(&mut self, command: &Command, name: &str) -> Vec<(Id, String)> {
        let mut found = Vec::new();
        let grouped = command
            .get_arguments()
            .filter(|arg| arg.get_help_heading().is_some() || arg.is_positional())
            .filter(|arg| !arg.is_global_set() && !arg.is_hide_set());
        for arg in grouped {
            let (id, help) = (arg.get_id(), arg.get_help().map(ToString::to_string));
            let earlier = self
                .described
                .iter()
                .find(|option| option.id == *id && option.help == help);
            let name_of_arg = match (arg.get_long(), arg.get_value_names()) {
                (Some(long), _) => Some(format!("--{long}")),
                (None, Some([name, ..])) => Some(name.to_string()),
                _ => None,
            };
            match (earlier, name_of_arg) {
                (Some(GroupedOption { command, .. }), Some(shown)) => {
                    let anchor = command.replace(' ', "-");
                    found.push((id.clone(), format!("[`{shown}`](#{anchor})")));
                }
                _ => self.described.push(GroupedOption {
                    id: id.clone(),
                    help,
                    command: name.to_owned(),
                }),
            }
        }
        found
    }
}

/// A command's help without its examples, and without the command `help`.
fn without_examples(help: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut in_examples = false;
    for line in help.lines() {
        in_examples = line == "Examples:" || in_examples && line.starts_with("  ");
        let is_help = line.ends_with("the help of the given subcommand(s)");
        // What was left out leaves no second empty line.
        let is_second = line.is_empty() && lines.last().is_some_and(|last| last.is_empty());
        if !in_examples && !is_help && !is_second {
            lines.push(line);
        }
    }
    lines.join("\n").trim_end().to_owned()
}

fn config() -> String {
    let schema = json_schema();
    let mut text = "# konverge.yaml\n\nGenerated from the JSON Schema by `konverge __reference config`; `konverge config schema` prints it.\n\nThe file lies at the repository's root; it and every key are optional. An unknown key is an error that names the nearest known one.\n".to_owned();
    table(&schema, &schema, "", &mut text);
    let definitions = schema["$defs"].as_object();
    for (name, definition) in definitions.into_iter().flatten() {
        if definition.get("properties").is_some() {
            table(&schema, definition, name, &mut text);
        } else if let Some(words) = value_words(definition) {
            let intro = introduction(definition, &text);
            text.push_str(&format!("\n## {name}\n\n{intro}{words}"));
        }
    }
    text
}

fn table(schema: &Value, object: &Value, name: &str, text: &mut String) {
    let title = if name.is_empty() { "Top level" } else { name };
    let intro = if name.is_empty() {
        String::new()
    } else {
        introduction(object, text)
    };
    text.push_str(&format!(
        "\n## {title}\n\n{intro}| key | type | meaning |\n|---|---|---|\n"
    ));
    for (key, property) in object["properties"].as_object().into_iter().flatten() {
        let meaning = value_text(property).replace('|', "\\|").replace('\n', " ");
        text.push_str(&format!("| `{key}` | {} | {meaning} |\n", kind(schema, property)));
    }
}

/// What a definition is, unless the page says it already, such as in the row of a key.
fn introduction(definition: &Value, page: &str) -> String {
    let text = value_text(definition);
    if page.contains(text.trim_end_matches('.')) {
        return String::new();
    }
    format!("{text}\n\n")
}

fn value_text(value: &Value) -> String {
    value["description"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The values of an enum with their meanings.
fn value_words(definition: &Value) -> Option<String> {
    let choices = definition["oneOf"].as_array()?;
    let lines = choices.iter().filter_map(|choice| {
        let word = choice["const"].as_str()?;
        Some(format!("- `{word}`: {}\n", value_text(choice)))
    });
    Some(lines.collect())
}

fn kind(schema: &Value, property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let plain = schema["$defs"][name]["type"]
            .as_str()
            .filter(|_| schema["$defs"][name].get("properties").is_none());
        return match plain {
            Some(plain) if schema["$defs"][name].get("oneOf").is_none() => plain.to_owned(),
            _ => format!("[{name}](#{})", name.to_lowercase()),
        };
    }
    if let Some(all) = property["anyOf"].as_array() {
        let some = all.iter().filter(|one| one["type"] != "null");
        let mut kinds: Vec<_> = some.map(|one| kind(schema, one)).collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    let plain = match &property["type"] {
        Value::String(word) => word.clone(),
        Value::Array(words) => words
            .iter()
            .filter_map(Value::as_str)
            .filter(|word| *word != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ => String::new(),
    };
    match plain.as_str() {
        "array" => format!("list of {}", kind(schema, &property["items"])),
        "object" if property.get("additionalProperties").is_some_and(Value::is_object) => {
            format!("map to {}", kind(schema, &property["additionalProperties"]))
        }
        _ => plain,
    }
}
