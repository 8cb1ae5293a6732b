//! The shortcuts past a station do not compile (passports, "What follows from it for the map", 9).
//!
//! A test of the inner package, so that each case is checked against its few dependencies and not against all of ours.

#[test]
fn no_station_can_be_skipped() {
    trybuild::TestCases::new().compile_fail("../../tests/compile_fail/cases/*.rs");
}
