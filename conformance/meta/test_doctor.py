"""The doctor: what a machine can't prove, told from what was found on it."""

from conformance.doctor import Examination, Stack, cannot_prove


def test_doctor_names_what_cannot_be_proved():
    """One line for each gap, none for a machine that has everything."""
    bare = Examination((Stack("reference", {}, (), "No module named 'torch'"), Stack("port", {}, ("cpu",))), "", "", 2, 4.0, 1.0)
    lines = list(cannot_prove(bare))
    assert [line.split(":")[0] for line in lines[:4]] == ["reference", "port", "serving", "evaluation"]
    assert len(lines) == 6
    stacks = Stack("reference", {}, ("NVIDIA H100",)), Stack("port", {}, ("TPU v5p",))
    full = Examination(stacks, "Icarus Verilog version 12.0 (stable)", "0.32.0", 96, 900.0, 500.0)
    assert list(cannot_prove(full)) == []


def test_an_old_simulator_is_named():
    """Control: an iverilog that is there but is not the one VerilogEval asks for is told apart."""
    stacks = Stack("reference", {}, ("NVIDIA H100",)), Stack("port", {}, ("TPU v5p",))
    found = Examination(stacks, "Icarus Verilog version 11.0 (stable)", "0.32.0", 96, 900.0, 500.0)
    assert [line.split(":")[0] for line in cannot_prove(found)] == ["evaluation"]
