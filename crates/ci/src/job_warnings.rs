//! [`JobWarnings`]: collects the warnings of a job, which the forge shows as annotations.

use std::sync::{Arc, Mutex};

use konverge_base::{
    model::{
        check_run::{Annotation, Level},
        note::{Note, NoteLevel},
    },
    sync::lock,
};
use konverge_forge::CiJob;
use konverge_run::{Notes, RunContext};
use konverge_secrets::Secrets;

/// Passes all notes on, and collects the warnings.
pub(super) struct JobWarnings {
    notes: Arc<dyn Notes>,
    secrets: Secrets,
    said: Mutex<Vec<String>>,
}

impl JobWarnings {
    /// Wraps the notes of a run. Returns the collector, and the run that uses it.
    pub(super) fn of_run(run: &RunContext) -> (Arc<Self>, RunContext) {
        let warnings = Arc::new(Self {
            notes: Arc::clone(&run.notes),
            secrets: run.secrets.clone(),
            said: Mutex::default(),
        });
        let run = RunContext {
            notes: Arc::clone(&warnings) as Arc<dyn Notes>,
            ..run.clone()
        };
        (warnings, run)
    }

    /// Annotates the job with the warnings. Called at the end of the job, because the runner shows only ten annotations
    /// of a level, and the last of these gives the number of the remaining ones.
    pub(super) fn annotate(&self, job: &dyn CiJob) {
        let said = std::mem::take(&mut *lock(&self.said));
        let annotation = |text: &String| Annotation {
            level: Level::Warning,
            file: String::new(),
            line: None,
            column: None,
            title: "konverge".to_owned(),
            message: self.secrets.mask(text),
        };
        let annotations: Vec<_> = said.iter().map(annotation).collect();
        for line in job.annotations(&annotations) {
            self.notes.command(&line);
        }
    }
}

impl Notes for JobWarnings {
    fn say(&self, note: Note) {
        if note.level == NoteLevel::Warning {
            let text = Note {
                level: NoteLevel::Info,
                ..note.clone()
            }
            .to_string();
            let mut said = lock(&self.said);
            if !said.contains(&text) {
                said.push(text);
            }
        }
        self.notes.say(note);
    }

    fn command(&self, line: &str) {
        self.notes.command(line);
    }
}
