"""Small trainings that measure methods that are not part of p4reduce."""
