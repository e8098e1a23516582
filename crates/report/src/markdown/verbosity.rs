//! The verbosity levels of a comment. Each level removes the part that is least important to a reader.

use crate::diff::DiffContext;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verbosity {
    /// Stacks without changes, by name.
    pub unchanged: bool,
    /// What is shown around a change.
    pub context: DiffContext,
    /// All stacks of a group by name; otherwise the first few.
    pub group_stacks: bool,
    /// The diffs of updates; otherwise only the paths.
    pub diffs: bool,
    /// Which folds of the stacks are shown.
    pub folds: Folds,
    /// The layout of the table.
    pub table: Table,
}

/// Which folds of the stacks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folds {
    /// All of them, or the step does not fit.
    All,
    /// As many whole folds as fit.
    Fitting,
}

/// The layout of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// One row per stack; per project if there are many.
    Stacks,
    /// One row per project.
    Projects,
    /// As many projects as fit.
    Fitting,
}

/// From the most to the least detail.
pub(super) const LADDER: [Verbosity; 9] = {
    const FULL: Verbosity = Verbosity {
        unchanged: true,
        context: DiffContext::Tree(3),
        group_stacks: true,
        diffs: true,
        folds: Folds::All,
        table: Table::Stacks,
    };
    const SHORT: Verbosity = Verbosity {
        unchanged: false,
        context: DiffContext::Path,
        group_stacks: false,
        ..FULL
    };
    [
        FULL,
        Verbosity {
            unchanged: false,
            ..FULL
        },
        Verbosity {
            unchanged: false,
            context: DiffContext::Tree(1),
            ..FULL
        },
        Verbosity {
            unchanged: false,
            context: DiffContext::Path,
            ..FULL
        },
        SHORT,
        Verbosity {
            diffs: false,
            ..SHORT
        },
        Verbosity {
            folds: Folds::Fitting,
            ..SHORT
        },
        Verbosity {
            diffs: false,
            folds: Folds::Fitting,
            table: Table::Projects,
            ..SHORT
        },
        Verbosity {
            diffs: false,
            folds: Folds::Fitting,
            table: Table::Fitting,
            ..SHORT
        },
    ]
};
