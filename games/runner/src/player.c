/* The fox: control with momentum, gravity, what it runs and jumps into, and how it looks.
 *
 * The box is 12 wide and 16 high, at x + 2 and y + 16. Speeds are pixels * 256 a frame.
 */
#include "game.h"

#define WALK 0x0180
#define RUN 0x0280
#define ACCELERATE 0x10
#define BRAKE 0x20
#define FRICTION 0x0E
#define JUMP -0x0460
#define JUMP_RUNNING -0x0480
#define BOUNCE -0x0380
#define BOUNCE_HIGH -0x0470
#define GRAVITY_HELD 0x22
#define GRAVITY 0x70
#define FASTEST_FALL 0x0430
#define POLE_SPEED 2

static int speed, fall;
static u8 held, stride, pose, wait;
static u8 bump_left, bump_page, bump_x, bump_y, bump_block, coin_left, coin_page, coin_x, coin_y;

static u8 is_solid(void) {
    return tile_at() >= FIRST_SOLID;
}

void place_player(void) {
    player_page = 0;
    player_x = 40;
    player_y_page = 1;
    player_y = GROUND_Y - 32;
    player_x_sub = player_y_sub = 0;
    speed = fall = 0;
    player_speed = player_fall = fall_sub = 0;
    float_state = FLOAT_STANDS;
    facing = RIGHT;
    held = BUTTON_A;
    stride = pose = wait = 0;
    bump_left = coin_left = 0;
}

static void slow_down(int by) {
    if (speed > by) {
        speed -= by;
    } else if (speed < -by) {
        speed += by;
    } else {
        speed = 0;
    }
}

void control_player(u8 buttons) {
    static int limit;
    limit = (buttons & BUTTON_B) ? RUN : WALK;
    if (buttons & BUTTON_RIGHT) {
        facing = RIGHT;
        if (speed < 0) {
            speed += BRAKE;
        } else if (speed < limit) {
            speed += ACCELERATE;
        } else if (float_state == FLOAT_STANDS && speed > limit) {
            speed -= FRICTION;
        }
    } else if (buttons & BUTTON_LEFT) {
        facing = LEFT;
        if (speed > 0) {
            speed -= BRAKE;
        } else if (speed > -limit) {
            speed -= ACCELERATE;
        } else if (float_state == FLOAT_STANDS && speed < -limit) {
            speed += FRICTION;
        }
    } else if (float_state == FLOAT_STANDS) {
        slow_down(FRICTION);
    }
    if ((buttons & BUTTON_A) && !(held & BUTTON_A) && float_state == FLOAT_STANDS) {
        fall = (speed > WALK || speed < -WALK) ? JUMP_RUNNING : JUMP;
        float_state = FLOAT_JUMPED;
        sound_jump();
    }
    if (fall < 0 && (buttons & BUTTON_A)) {
        fall += GRAVITY_HELD;
    } else {
        fall += GRAVITY;
    }
    if (fall > FASTEST_FALL) {
        fall = FASTEST_FALL;
    }
    held = buttons;
}

static void stop_at(u8 x, u8 page) {
    player_x = x;
    player_page = page;
    player_x_sub = 0;
    speed = 0;
}

/* Along x; a wall on the leading side, at two heights, stops. */
static void move_x(void) {
    static u16 before, after, place;
    if (speed == 0) {
        return;
    }
    before = ((u16)player_x << 8) | player_x_sub;
    after = before + speed;
    player_x = after >> 8;
    player_x_sub = after;
    if (speed > 0) {
        if (after < before) {
            ++player_page;
        }
        query_x = player_x + 14;
        query_page = player_page + (query_x < 14);
    } else {
        if (after > before) {
            --player_page;
        }
        /* The left edge of the screen is a wall. */
        place = (((u16)player_page << 8) | player_x) - (((u16)screen_page << 8) | screen_x);
        if (place < 8 || place > 0x8000) {
            place = (((u16)screen_page << 8) | screen_x) + 8;
            stop_at(place, place >> 8);
            return;
        }
        query_x = player_x + 1;
        query_page = player_page + (query_x < 1);
    }
    if (player_y_page != 1) {
        return;
    }
    query_y = player_y + 18;
    if (query_y < 18) {
        return;
    }
    if (!is_solid()) {
        query_y = player_y + 30;
        if (query_y < 30 || !is_solid()) {
            return;
        }
    }
    if (speed > 0) {
        place = (((u16)query_page << 8) | (query_x & 0xF0)) - 15;
    } else {
        place = (((u16)query_page << 8) | (query_x & 0xF0)) + 15;
    }
    stop_at(place, place >> 8);
}

static void hit_block(u8 block) {
    fall = 0;
    sound_bump();
    if (bump_left || block_ready || (block != BLOCK_BRICK && block != BLOCK_LANTERN)) {
        return;
    }
    bump_left = 10;
    bump_page = query_page;
    bump_x = query_x & 0xF0;
    bump_y = query_y & 0xF0;
    bump_block = BLOCK_BRICK;
    if (block == BLOCK_LANTERN) {
        bump_block = BLOCK_SPENT;
        set_block(bump_page, bump_x, bump_y, BLOCK_SPENT);
        coin_left = 24;
        coin_page = bump_page;
        coin_x = bump_x;
        coin_y = bump_y - 16;
        add_coin();
    }
    erase_block(bump_page, bump_x, bump_y);
    kill_above(bump_page, bump_x, bump_y);
}

/* Query a point at some distance right of x. */
static u8 block_at(u8 right) {
    query_x = player_x + right;
    query_page = player_page + (query_x < right);
    return tile_at();
}

static void move_up(void) {
    static u8 block;
    if (player_y_page != 1) {
        return;
    }
    query_y = player_y + 16;
    if (query_y < 16) {
        return;
    }
    block = block_at(8);
    if (block < FIRST_SOLID) {
        block = block_at(3);
        if (block < FIRST_SOLID) {
            block = block_at(13);
            if (block < FIRST_SOLID) {
                return;
            }
        }
    }
    player_y = query_y & 0xF0;
    hit_block(block);
}

static void move_down(void) {
    if (player_y_page == 1) {
        query_y = player_y + 32;
        if (query_y >= 32 && (block_at(3) >= FIRST_SOLID || block_at(12) >= FIRST_SOLID)) {
            player_y = (query_y & 0xF0) - 32;
            player_y_sub = 0;
            fall = 0;
            float_state = FLOAT_STANDS;
            return;
        }
    }
    if (float_state == FLOAT_STANDS) {
        float_state = FLOAT_FELL;
    }
}

static void move_y(void) {
    static u16 before, after;
    before = ((u16)player_y << 8) | player_y_sub;
    after = before + fall;
    player_y = after >> 8;
    player_y_sub = after;
    if (fall < 0) {
        if (after > before) {
            --player_y_page;
        }
        move_up();
    } else {
        if (after < before) {
            ++player_y_page;
        }
        move_down();
    }
}

static void take_coin(void) {
    if (player_y_page != 1 || block_ready) {
        return;
    }
    query_y = player_y + 24;
    if (query_y >= 24 && block_at(8) == BLOCK_COIN) {
        set_block(query_page, query_x, query_y, BLOCK_SKY);
        add_coin();
    }
}

void move_player(void) {
    static u8 column;
    move_x();
    move_y();
    take_coin();
    player_speed = speed >> 4;
    player_fall = fall >> 8;
    fall_sub = fall;
    if (player_state != STATE_PLAYS) {
        return;
    }
    if (player_y_page > 1) {
        kill_player();
        return;
    }
    column = ((player_page << 4) | (player_x >> 4));
    if (column >= pole_column || (column == pole_column - 1 && (player_x & 15) >= 9)) {
        player_state = STATE_POLE;
        float_state = FLOAT_SLIDES;
        speed = fall = 0;
        player_page = (pole_column - 1) >> 4;
        player_x = ((pole_column - 1) << 4) + 8;
        if (player_y_page != 1 || player_y < 64) {
            player_y_page = 1;
            player_y = 64;
        }
        add_score(player_y < 90 ? 2 : 3, player_y < 90 ? 1 : (176 - player_y) >> 4);
        stop_music();
        sound_flag();
    }
}

void slide_down_pole(void) {
    if (player_y < GROUND_Y - 48) {
        player_y += POLE_SPEED;
        return;
    }
    if (++wait > 20) {
        player_state = STATE_LEAVES;
        held = 0;
    }
}

void bounce_player(void) {
    fall = (held & BUTTON_A) ? BOUNCE_HIGH : BOUNCE;
    float_state = FLOAT_JUMPED;
}

void kill_player(void) {
    player_state = STATE_DYING;
    wait = 0;
    stop_music();
    sound_die();
}

/* Up and down, through everything; then dead. */
void hop_dying(void) {
    static u8 before;
    ++wait;
    if (wait > 20 && player_y_page < 2) {
        before = player_y;
        if (wait < 36) {
            player_y -= 4;
            if (player_y > before) {
                --player_y_page;
            }
        } else {
            player_y += 4;
            if (player_y < before) {
                ++player_y_page;
            }
        }
    }
    if (wait > 120) {
        player_state = STATE_DEAD;
    }
}

/* Blocks that were hit jump up and fall back; a coin may come out. */
void move_bump(void) {
    static const u8 heights[] = {0, 2, 4, 6, 7, 7, 6, 5, 4, 2};
    if (bump_left) {
        if (--bump_left == 0) {
            if (block_ready) {
                bump_left = 1;
            } else {
                set_block(bump_page, bump_x, bump_y, bump_block);
            }
        }
    }
    if (bump_left) {
        draw_x = bump_x - screen_x;
        draw_y = bump_y - heights[bump_left];
        draw_what = bump_block == BLOCK_BRICK ? SPRITE_BRICK : SPRITE_SPENT;
        draw_how = 3;
        draw_block_sprite();
    }
    if (coin_left) {
        --coin_left;
        coin_y -= coin_left > 10 ? 2 : 0;
        draw_x = coin_x - screen_x;
        draw_y = coin_y;
        draw_what = (coin_left & 4) ? SPRITE_COIN_1 : SPRITE_COIN_2;
        draw_how = 3;
        draw_block_sprite();
    }
}

static u8 choose_pose(void) {
    static const u8 running[] = {SPRITE_FOX_RUN1, SPRITE_FOX_RUN2, SPRITE_FOX_RUN3, SPRITE_FOX_RUN2};
    static u8 pace;
    if (player_state == STATE_DYING) {
        return SPRITE_FOX_DEAD;
    }
    if (float_state == FLOAT_SLIDES) {
        return SPRITE_FOX_SLIDE;
    }
    if (float_state != FLOAT_STANDS) {
        return SPRITE_FOX_JUMP;
    }
    pace = player_speed;
    if (pace & 0x80) {
        pace = -pace;
    }
    if (pace == 0) {
        stride = 0;
        return SPRITE_FOX_STAND;
    }
    stride += pace + 6;
    return running[(stride >> 6) & 3];
}

void draw_player(void) {
    if (player_y_page != 1 || player_y >= 224) {
        return;
    }
    draw_x = player_x - screen_x;
    draw_y = player_y + 16;
    draw_what = choose_pose();
    draw_how = facing == LEFT ? 0x40 : 0;
    draw_block_sprite();
}
