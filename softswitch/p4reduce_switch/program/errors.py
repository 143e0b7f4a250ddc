"""Errors of a P4 program.

ProgramError
├── UnsupportedConstructError  Program(): the program uses a construct that is not implemented
├── InvalidProgramError        Program(): the configuration is not a BMv2 JSON of a v1model program
├── ExecutionError             process(): the frame ran into undefined behaviour and was dropped
├── TableError
│   ├── TableFullError         insert() into a table that holds max_size entries
│   ├── EntryExistsError       insert() of an existing match
│   └── EntryMissingError      modify() or delete() of an unknown match
└── ProfileError
    ├── ProfileFullError       more members, or more weight in groups, than an action profile takes
    ├── TargetExistsError      insert of an existing member or group
    ├── TargetMissingError     an unknown member or group
    ├── TargetInUseError       delete of a member or group that a group or an entry refers to
    └── MixedUseError          action sets and members of their own in one action selector
"""

from __future__ import annotations


class ProgramError(Exception):
    """Root of all errors raised by this package."""


class UnsupportedConstructError(ProgramError):
    """The program uses a construct that is not implemented; the message names it."""


class InvalidProgramError(ProgramError):
    """The configuration is not a well-formed BMv2 JSON."""


class ExecutionError(ProgramError):
    """The execution of a frame reached undefined behaviour (failed assert, division by zero, stack index out of
    range, endless recirculation). All outputs of that frame are discarded."""


class TableError(ProgramError):
    """Root of the errors of table writes."""


class TableFullError(TableError):
    """The table already holds max_size entries."""


class EntryExistsError(TableError):
    """An entry with this match (and priority) exists; use modify."""


class EntryMissingError(TableError):
    """There is no entry with this match (and priority)."""


class ProfileError(ProgramError):
    """Root of the errors of action profiles."""


class ProfileFullError(ProfileError):
    """The action profile takes no more members, or a group no more weight."""


class TargetExistsError(ProfileError):
    """A member, or a group, of that id exists; use modify."""


class TargetMissingError(ProfileError):
    """There is no member, or no group, of that id."""


class TargetInUseError(ProfileError):
    """A group or an entry refers to this member or group; change that one first."""


class MixedUseError(ProfileError):
    """An action selector is programmed by action sets in entries, or by members and groups, not by both."""
