/* Grubs walk on and fall off edges, beetles turn at edges, hoppers hop. All can be stomped. Four at a time, and the flag.
 *
 * An enemy's box is 12 wide and 12 high, at x + 2 and y + 12; its feet are at y + 24.
 */
#include "game.h"

#define ENEMIES 4
#define FLAT_FRAMES 30
#define REACH_X 13
#define HOP 0xFC /* four pixels a frame, upwards */
#define FASTEST_FALL 4

extern const u8 *const level_enemies[];
static const u8 *next_enemy;
static u8 enemy_x_sub[SLOTS];
static u8 i;
static u16 camera;

void clear_enemies(void) {
    for (i = 0; i < SLOTS; ++i) {
        enemy_active[i] = enemy_type[i] = enemy_state[i] = 0;
    }
    next_enemy = level_enemies[area];
}

static void spawn(u8 column, u8 row, u8 type) {
    for (i = 0; i < ENEMIES; ++i) {
        if (!enemy_active[i]) {
            enemy_active[i] = 1;
            enemy_type[i] = type;
            enemy_state[i] = 0;
            enemy_page[i] = column >> 4;
            enemy_x[i] = column << 4;
            enemy_x_sub[i] = 0;
            enemy_y_page[i] = 1;
            enemy_y[i] = (row << 4) + 24;
            enemy_fall[i] = 0;
            enemy_speed[i] = type == TYPE_GRUB ? -8 : -10;
            return;
        }
    }
}

void spawn_enemies(u8 column) {
    while (next_enemy[0] <= column && next_enemy[0] != 255) {
        spawn(next_enemy[0], next_enemy[1], next_enemy[2]);
        next_enemy += 3;
    }
    if (column >= pole_column && !enemy_active[FLAG_SLOT]) {
        place_flag();
    }
}

void place_flag(void) {
    enemy_active[FLAG_SLOT] = 1;
    enemy_type[FLAG_SLOT] = TYPE_FLAG;
    enemy_page[FLAG_SLOT] = (pole_column - 1) >> 4;
    enemy_x[FLAG_SLOT] = ((pole_column - 1) << 4) + 8;
    enemy_y_page[FLAG_SLOT] = 1;
    enemy_y[FLAG_SLOT] = 84;
}

static void lie_flat(void) {
    enemy_state[i] = FLAT_FRAMES;
    add_score(4, 1);
    sound_stomp();
}

static u8 is_solid_at(u8 right, u8 down) {
    query_x = enemy_x[i] + right;
    query_page = enemy_page[i] + (query_x < right);
    query_y = enemy_y[i] + down;
    return query_y >= down && tile_at() >= FIRST_SOLID;
}

static void walk(void) {
    static u16 before, after;
    static u8 pace;
    before = ((u16)enemy_x[i] << 8) | enemy_x_sub[i];
    if (enemy_speed[i] & 0x80) {
        pace = -enemy_speed[i]; /* an assignment, as cc65 2.19 does not narrow the sum when it is cast */
        after = before - ((u16)pace << 4);
        if (after > before) {
            --enemy_page[i];
        }
    } else {
        after = before + ((u16)enemy_speed[i] << 4);
        if (after < before) {
            ++enemy_page[i];
        }
    }
    enemy_x[i] = after >> 8;
    enemy_x_sub[i] = after;
    if (is_solid_at((enemy_speed[i] & 0x80) ? 1 : 14, 18)) {
        enemy_speed[i] = -enemy_speed[i];
    }
}

static void land(void) {
    enemy_y[i] = (query_y & 0xF0) - 24;
    enemy_fall[i] = 0;
    if (enemy_type[i] == TYPE_HOPPER) {
        if ((frame_counter & 0x1F) == 0) {
            enemy_fall[i] = HOP;
        }
    } else if (enemy_type[i] == TYPE_BEETLE && !is_solid_at((enemy_speed[i] & 0x80) ? 3 : 12, 24)) {
        enemy_speed[i] = -enemy_speed[i];
    }
}

static void drop(void) {
    enemy_y[i] += enemy_fall[i];
    if (!(enemy_fall[i] & 0x80) && is_solid_at(8, 24)) {
        land();
        return;
    }
    if ((frame_counter & 3) == 0 && enemy_fall[i] != FASTEST_FALL) {
        ++enemy_fall[i];
    }
    if (enemy_y[i] >= 224 && !(enemy_fall[i] & 0x80)) {
        enemy_active[i] = 0;
    }
}

/* Met from above it is stomped, from anywhere else the player dies. */
static void meet_player(void) {
    static u8 apart;
    static u8 feet;
    apart = player_x - enemy_x[i];
    if (apart & 0x80) {
        apart = -apart;
    }
    if (apart >= REACH_X || player_y_page != 1) {
        return;
    }
    if ((u8)(player_page - enemy_page[i] + 1) > 2) {
        return;
    }
    feet = player_y + 32;
    if (feet < 32 || feet <= enemy_y[i] + 9 || player_y + 16 >= enemy_y[i] + 22) {
        return;
    }
    if (!(player_fall & 0x80) && float_state != FLOAT_STANDS && feet <= enemy_y[i] + 20) {
        lie_flat();
        bounce_player();
    } else {
        kill_player();
    }
}

void kill_above(u8 page, u8 x, u8 y) {
    static u8 apart;
    for (i = 0; i < ENEMIES; ++i) {
        if (enemy_active[i] && !enemy_state[i] && enemy_page[i] == page && enemy_y[i] + 24 == y) {
            apart = enemy_x[i] - x;
            if (apart < 16 || apart > 240) {
                lie_flat();
            }
        }
    }
}

void move_enemies(void) {
    static u16 place;
    camera = ((u16)screen_page << 8) | screen_x;
    for (i = 0; i < ENEMIES; ++i) {
        if (!enemy_active[i]) {
            continue;
        }
        if (enemy_state[i]) {
            if (--enemy_state[i] == 0) {
                enemy_active[i] = 0;
            }
            continue;
        }
        if (enemy_type[i] != TYPE_HOPPER || enemy_fall[i]) {
            walk();
        }
        drop();
        place = (((u16)enemy_page[i] << 8) | enemy_x[i]) + 48 - camera;
        if (place > 400) {
            enemy_active[i] = 0;
            continue;
        }
        if (enemy_active[i] && player_state == STATE_PLAYS) {
            meet_player();
        }
    }
    if (enemy_active[FLAG_SLOT] && player_state == STATE_POLE && enemy_y[FLAG_SLOT] < 168) {
        enemy_y[FLAG_SLOT] += 2;
    }
}

static u8 picture(void) {
    static u8 step;
    step = (frame_counter >> 3) & 1;
    switch (enemy_type[i]) {
    case TYPE_GRUB:
        return enemy_state[i] ? SPRITE_GRUB_FLAT : SPRITE_GRUB_1 + step;
    case TYPE_BEETLE:
        return enemy_state[i] ? SPRITE_BEETLE_FLAT : SPRITE_BEETLE_1 + step;
    case TYPE_HOPPER:
        return enemy_state[i] ? SPRITE_BEETLE_FLAT : (enemy_fall[i] ? SPRITE_HOPPER_2 : SPRITE_HOPPER_1);
    }
    return SPRITE_FLAG;
}

void draw_enemies(void) {
    static u16 place;
    camera = ((u16)screen_page << 8) | screen_x;
    for (i = 0; i < SLOTS; ++i) {
        if (!enemy_active[i]) {
            continue;
        }
        place = (((u16)enemy_page[i] << 8) | enemy_x[i]) - camera;
        if (place > 255 || enemy_y[i] >= 224) {
            continue;
        }
        draw_x = place;
        draw_y = enemy_y[i] + 8;
        draw_what = picture();
        draw_how = enemy_type[i] == TYPE_GRUB ? 1 : (enemy_type[i] == TYPE_FLAG ? 3 : 2);
        if ((enemy_speed[i] & 0x80) && enemy_type[i] == TYPE_BEETLE) {
            draw_how |= 0x40;
        }
        draw_block_sprite();
    }
}
