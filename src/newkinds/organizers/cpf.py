"""The short name of newkinds.encoders.organizers.cpf."""

from ..encoders.organizers.cpf import *  # noqa: F403
