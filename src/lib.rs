//! Konverge.
