//! [`Measurement`]: what an expression evaluated to.

/// What an expression evaluated to. Only [`Measurement::Number`] can be compared with a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measurement {
    /// One finite number.
    Number(f64),
    /// No series matches, or none has a sample in the time.
    NoSeries,
    /// One value that is NaN or infinite, such as a ratio without requests.
    NotFinite(f64),
    /// So many series, each with a value of its own.
    Several(usize),
}
